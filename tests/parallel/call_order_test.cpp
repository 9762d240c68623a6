#include <optional>

#include <gtest/gtest.h>

#include <ddpxx/parallel/call_order.hpp>

namespace ddpxx::call_order_test {
namespace {

/// Calls each unit from a layer with the number of the unit.
void pass(CallOrder& order, std::initializer_list<std::size_t> units) {
  order.begin_forward();
  for (const auto unit : units) order.enter(unit, unit);
}

TEST(CallOrder, PredictsTheNextUnitFromThePassBefore) {
  CallOrder order;
  EXPECT_EQ(order.first(), std::nullopt);
  order.begin_forward();
  for (const std::size_t unit : {1U, 2U, 3U})
    EXPECT_EQ(order.enter(unit, unit).next, std::nullopt) << "the first pass cannot predict";
  order.begin_forward();
  EXPECT_EQ(order.first(), 1u);
  EXPECT_EQ(order.enter(1, 1).next, 2u);
  EXPECT_EQ(order.enter(3, 3).next, std::nullopt) << "a pass with another order must not predict";
}

TEST(CallOrder, SaysWhatIsNeededAgainAfterACall) {
  CallOrder order;
  pass(order, {1, 1, 2, 2});
  order.begin_forward();
  const auto first = order.enter(1, 1), second = order.enter(1, 2), third = order.enter(2, 3), last = order.enter(2, 4);
  EXPECT_TRUE(first.again && first.next == 2u) << "unit 1 is needed again, and unit 2 can be gathered already";
  EXPECT_TRUE(!second.again && !second.last);
  EXPECT_TRUE(third.again && third.next == std::nullopt);
  EXPECT_TRUE(!last.again && last.last) << "the last unit stays, because backward begins with it";
}

TEST(CallOrder, FollowsTheCallsBackIncludingAUnitThatRanTwice) {
  CallOrder order;
  pass(order, {1, 2, 1, 3, 3});
  EXPECT_EQ(order.enter_backward(3), 1u);
  EXPECT_EQ(order.enter_backward(3), 1u);
  EXPECT_EQ(order.enter_backward(1), 2u);
  EXPECT_EQ(order.enter_backward(2), 1u);
  EXPECT_EQ(order.enter_backward(7), std::nullopt) << "unit 7 was never called";
  EXPECT_EQ(order.enter_backward(1), std::nullopt);
}

TEST(CallOrder, TheHashTellsOrdersOfLayersApartAndIsTakenOnce) {
  CallOrder one, other;
  for (const std::size_t layer : {1U, 2U}) one.enter(1, layer);
  for (const std::size_t layer : {2U, 1U}) other.enter(1, layer);
  const auto hash = one.take_hash();
  EXPECT_NE(hash, other.take_hash());
  EXPECT_EQ(one.take_hash(), 0u);
  for (const std::size_t layer : {1U, 2U}) one.enter(1, layer);
  EXPECT_EQ(one.take_hash(), hash);
}

}  // namespace
}  // namespace ddpxx::call_order_test
