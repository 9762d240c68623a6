#include <gtest/gtest.h>

#include <ddpxx/parallel/call_order.hpp>

namespace ddpxx {
namespace {

TEST(CallOrder, PredictsTheNextLayerFromThePassBefore) {
  CallOrder order;
  order.begin_forward();
  for (const std::size_t layer : {1, 2, 3}) EXPECT_EQ(order.enter(layer), std::nullopt) << "nothing is known yet";
  order.begin_forward();
  EXPECT_EQ(order.enter(1), 2u);
  EXPECT_EQ(order.enter(3), std::nullopt) << "this pass goes another way";
}

TEST(CallOrder, FollowsTheCallsBackIncludingALayerThatRanTwice) {
  CallOrder order;
  order.begin_forward();
  for (const std::size_t layer : {1, 2, 1, 3}) order.enter(layer);
  EXPECT_EQ(order.enter_backward(3), 1u);
  EXPECT_EQ(order.enter_backward(1), 2u);
  EXPECT_EQ(order.enter_backward(2), 1u);
  EXPECT_EQ(order.enter_backward(1), std::nullopt);
}

TEST(CallOrder, TheHashTellsOrdersApartAndIsTakenOnce) {
  CallOrder one, other;
  for (const std::size_t layer : {1, 2}) one.enter(layer);
  for (const std::size_t layer : {2, 1}) other.enter(layer);
  const auto hash = one.take_hash();
  EXPECT_NE(hash, other.take_hash());
  EXPECT_EQ(one.take_hash(), 0u);
  for (const std::size_t layer : {1, 2}) one.enter(layer);
  EXPECT_EQ(one.take_hash(), hash);
}

}  // namespace
}  // namespace ddpxx
