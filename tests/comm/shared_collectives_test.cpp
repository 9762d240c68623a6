// The ranks are threads here, which share plain memory, so that the thread sanitizer sees all accesses of all ranks.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/shared_collectives.hpp>

namespace ddpxx::shared_collectives_test {
namespace {

using detail::RoundWords;
using detail::SharedCollectives;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{4096}); }
};
using Memory = std::unique_ptr<std::byte, FreeAligned>;

Memory make_memory(int size) {
  const auto bytes = SharedCollectives::memory_bytes(size);
  Memory memory{static_cast<std::byte*>(::operator new(bytes, std::align_val_t{4096}))};
  std::memset(memory.get(), 0, bytes);
  return memory;
}

TEST(SharedCollectives, EachByteOfTheMemoryIsInThePartOfOneRank) {
  for (const int size : {1, 2, 7}) {
    std::size_t end = 0;
    for (int rank = 0; rank < size; ++rank) {
      const auto part = SharedCollectives::part_of(rank, size);
      EXPECT_EQ(part.begin, end) << rank << " of " << size;
      end += part.bytes;
    }
    EXPECT_EQ(end, SharedCollectives::memory_bytes(size));
  }
}

using Body = std::function<void(SharedCollectives&, int rank)>;

/// Runs `body` on `size` ranks; returns what each rank has thrown, or an empty text.
std::vector<std::string> run_ranks(int size, const Body& body,
                                   std::chrono::milliseconds limit = std::chrono::minutes{5},
                                   std::chrono::microseconds spin = std::chrono::microseconds{1},
                                   std::byte* memory = nullptr) {
  const auto own = memory == nullptr ? make_memory(size) : Memory{};
  if (memory == nullptr) memory = own.get();
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      SharedCollectives shared{memory, rank, size};
      ready.fetch_add(1);
      while (ready.load() < size) std::this_thread::yield();
      shared.rounds().set_patience({spin, limit});
      try {
        body(shared, rank);
      } catch (const std::runtime_error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        shared.rounds().give_up();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

/// The values of a rank, which every rank can compute.
at::Tensor values(std::int64_t count, at::ScalarType type, int rank, int salt) {
  std::mt19937 random{static_cast<unsigned>(1000 * salt + rank)};
  auto tensor = at::empty({count}, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  // Floating-point values whose sum depends on the order; whole numbers that fit into all types.
  const bool fractions = at::isFloatingType(type);
  for (std::int64_t i = 0; i < count; ++i)
    data[i] = fractions ? std::ldexp(static_cast<double>(random() % 2048) - 1024, static_cast<int>(random() % 12) - 9)
                        : static_cast<double>(random() % 13);
  return type == at::kBool ? tensor.gt(6) : tensor.to(type);
}

/// What all ranks must get: the values added in the order of the ranks, in `type`, or in float if that has 16 bits.
at::Tensor reduced(std::int64_t count, at::ScalarType type, int size, int salt, Reduce reduce) {
  const bool is_short = type == at::kHalf || type == at::kBFloat16;
  const auto wide = is_short ? at::kFloat : type;
  auto result = values(count, type, 0, salt).to(wide);
  for (int rank = 1; rank < size; ++rank) {
    const auto next = values(count, type, rank, salt).to(wide);
    if (reduce == Reduce::min)
      result = at::minimum(result, next);
    else if (reduce == Reduce::max)
      result = at::maximum(result, next);
    else
      result = type == at::kBool ? result.logical_or(next) : result + next;
  }
  return result.to(type);
}

const std::vector<at::ScalarType> kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                         at::kInt,   at::kShort,  at::kChar,     at::kByte, at::kBool};

class SharedCollectivesOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedCollectivesOf, testing::Values(1, 2, 3, 4, 8));

TEST_P(SharedCollectivesOf, ReduceAllTypesInTheOrderOfTheRanks) {
  const int size = GetParam();
  expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
    for (const auto type : kTypes)
      for (const auto reduce : {Reduce::sum, Reduce::min, Reduce::max})
        for (const std::int64_t count : {0, 1, 3, 255, 257, 5000, 20011}) {
          const auto own = values(count, type, rank, 1);
          shared.all_reduce(bytes_of(own), count, type, reduce);
          EXPECT_TRUE(at::equal(own, reduced(count, type, size, 1, reduce))) << type << ' ' << count;
        }
  }));
}

// Two buffers are not enough for these, and the last piece is a short one.
TEST_P(SharedCollectivesOf, PassTensorsThatAreLargerThanTheirBuffers) {
  const int size = GetParam();
  const std::int64_t count = 3 * SharedCollectives::kBufferBytes / 4 + 1237;
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values(count, at::kFloat, rank, 2));
  const auto sum = reduced(count, at::kFloat, size, 2, Reduce::sum), whole = at::cat(all);
  expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
    const auto& own = all[static_cast<std::size_t>(rank)];
    auto tensor = own.clone();
    shared.all_reduce(bytes_of(tensor), count, at::kFloat, Reduce::sum);
    EXPECT_TRUE(at::equal(tensor, sum));
    auto gathered = at::zeros_like(whole);
    shared.all_gather(bytes_of(gathered), bytes_of(own), own.numel() * 4);
    EXPECT_TRUE(at::equal(gathered, whole));
    for (int root = 0; root < size; ++root) {
      auto sent = own.clone();
      shared.broadcast(bytes_of(sent), sent.numel() * 4, root);
      EXPECT_TRUE(at::equal(sent, all[static_cast<std::size_t>(root)]));
    }
  }));
}

TEST_P(SharedCollectivesOf, ScatterTheSumsAlsoIntoTheInputAndIntoAnotherType) {
  const int size = GetParam();
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{777},
                                   std::int64_t{SharedCollectives::kBufferBytes} / 4 / size * 2 + 5})
    expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
        const auto sums = reduced(count * size, type, size, 3, Reduce::sum).narrow(0, rank * count, count);
        auto input = values(count * size, type, rank, 3);
        auto apart = at::zeros({count}, type);
        shared.reduce_scatter(bytes_of(apart), bytes_of(input), count, {type, type});
        EXPECT_TRUE(at::equal(apart, sums)) << type << ' ' << count;
        const auto inside = input.narrow(0, rank * count, count);
        shared.reduce_scatter(bytes_of(inside), bytes_of(input), count, {type, type});
        EXPECT_TRUE(at::equal(inside, sums)) << type << ' ' << count;
      }
      const auto input = values(count * size, at::kBFloat16, rank, 4);
      auto exact = at::zeros({count}), expected = at::zeros({count});
      shared.reduce_scatter(bytes_of(exact), bytes_of(input), count, {at::kBFloat16, at::kFloat});
      for (int other = 0; other < size; ++other)
        expected += values(count * size, at::kBFloat16, other, 4).narrow(0, rank * count, count);
      EXPECT_TRUE(at::equal(exact, expected));
    }));
}

TEST_P(SharedCollectivesOf, GatherIntoTheOwnPiece) {
  const int size = GetParam();
  for (const std::int64_t count : {1, 1001})
    expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
      auto whole = at::full({size, count}, -1);
      whole[rank].fill_(rank);
      shared.all_gather(bytes_of(whole), bytes_of(whole[rank]), count * 8);
      EXPECT_TRUE(at::equal(whole, at::arange(size).unsqueeze(1).expand({size, count})));
    }));
}

// Rank r sends (r + other) % 3 pieces to each other rank; a piece is larger than a slot of a buffer, or a few bytes.
TEST_P(SharedCollectivesOf, SendPartsOfDifferentSizesToEachRank) {
  const int size = GetParam();
  for (const std::int64_t piece : {std::int64_t{5}, std::int64_t{SharedCollectives::kBufferBytes} + 3})
    expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
      std::vector<std::int64_t> bytes;
      std::vector<at::Tensor> to, from;
      for (int other = 0; other < size; ++other) {
        bytes.push_back((rank + other) % 3 * piece);
        to.push_back(at::full({bytes.back()}, 10 * rank + other, at::kByte));
        from.push_back(at::full({bytes.back()}, 10 * other + rank, at::kByte));
      }
      const auto input = at::cat(to);
      auto output = at::zeros_like(input);
      shared.all_to_all(bytes_of(output), bytes_of(input), bytes, bytes);
      EXPECT_TRUE(at::equal(output, at::cat(from)));
    }));
}

// One rank is late now and then, so that the others run ahead into the next collective as far as they can.
TEST_P(SharedCollectivesOf, DifferentKindsFollowEachOtherInAnyOrder) {
  const int size = GetParam();
  expect_no_errors(run_ranks(size, [&](SharedCollectives& shared, int rank) {
    std::mt19937 kinds{7}, delays{static_cast<unsigned>(rank)};
    for (int i = 0; i < 300; ++i) {
      const auto count = std::int64_t{1} << kinds() % 14;
      const auto own = values(count, at::kFloat, rank, i);
      if (delays() % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      switch (kinds() % 4) {
        case 0: {
          shared.all_reduce(bytes_of(own), count, at::kFloat, Reduce::sum);
          ASSERT_TRUE(at::equal(own, reduced(count, at::kFloat, size, i, Reduce::sum)));
          break;
        }
        case 1: {
          auto whole = at::zeros({size, count});
          shared.all_gather(bytes_of(whole), bytes_of(own), count * 4);
          for (int other = 0; other < size; ++other)
            ASSERT_TRUE(at::equal(whole[other], values(count, at::kFloat, other, i)));
          break;
        }
        case 2: {
          shared.broadcast(bytes_of(own), count * 4, i % size);
          ASSERT_TRUE(at::equal(own, values(count, at::kFloat, i % size, i)));
          break;
        }
        default:
          shared.barrier();
      }
    }
  }));
}

TEST(SharedCollectives, SpinAsWellAsSleep) {
  for (const int spin : {0, 100'000})
    expect_no_errors(run_ranks(
        2,
        [](SharedCollectives& shared, int) {
          for (int i = 0; i < 200; ++i) shared.barrier();
        },
        std::chrono::minutes{5}, std::chrono::microseconds{spin}));
}

TEST(SharedCollectives, OfDifferentKindsAreNamed) {
  const auto errors = run_ranks(2, [](SharedCollectives& shared, int rank) {
    auto tensor = at::zeros({4});
    if (rank == 0)
      shared.all_reduce(bytes_of(tensor), 4, at::kFloat, Reduce::sum);
    else
      shared.broadcast(bytes_of(tensor), 16, 0);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 calls broadcast (16 bytes"));
  EXPECT_THAT(errors[0], HasSubstr("and rank 0 calls all_reduce (4 elements"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 calls all_reduce (4 elements"));
}

TEST(SharedCollectives, OfDifferentSizesTypesOrRootsAreErrors) {
  const auto differ = [](const Body& one, const Body& other) {
    const auto errors =
        run_ranks(2, [&](SharedCollectives& shared, int rank) { (rank == 0 ? one : other)(shared, rank); });
    EXPECT_NE(errors[0], "");
    EXPECT_NE(errors[1], "");
  };
  const auto reduce = [](std::int64_t count, at::ScalarType type, Reduce how) -> Body {
    return [=](SharedCollectives& shared, int) {
      const auto tensor = at::zeros({count}, type);
      shared.all_reduce(bytes_of(tensor), count, type, how);
    };
  };
  const auto send = [](int root) -> Body {
    return [=](SharedCollectives& shared, int) {
      const auto tensor = at::zeros({4});
      shared.broadcast(bytes_of(tensor), 16, root);
    };
  };
  differ(reduce(4, at::kFloat, Reduce::sum), reduce(5, at::kFloat, Reduce::sum));
  differ(reduce(4, at::kFloat, Reduce::sum), reduce(4, at::kInt, Reduce::sum));
  differ(reduce(4, at::kFloat, Reduce::sum), reduce(4, at::kFloat, Reduce::max));
  differ(reduce(4, at::kFloat, Reduce::sum), reduce(1 << 20, at::kFloat, Reduce::sum));
  differ(send(0), send(1));
}

TEST(SharedCollectives, NameTheRankThatIsLateAndTheOneThatGaveUp) {
  const auto errors = run_ranks(
      3,
      [](SharedCollectives& shared, int rank) {
        if (rank == 1) return;
        if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds{50});
        shared.barrier();
      },
      std::chrono::milliseconds{300});
  // A loaded machine may delay another rank, too.
  EXPECT_THAT(errors[0], testing::ContainsRegex("^rank 1(, rank 2)? did not come in time$"));
  EXPECT_THAT(errors[2], testing::ContainsRegex("^(rank 0, )?rank 1 did not come in time$"));
  const auto abandoned = run_ranks(3, [](SharedCollectives& shared, int rank) {
    if (rank == 1) throw std::runtime_error{"out of ideas"};
    shared.barrier();
  });
  EXPECT_EQ(abandoned[0], "rank 1 has abandoned the group");
  EXPECT_EQ(abandoned[2], "rank 1 has abandoned the group");
}

TEST(SharedCollectives, CompleteWhatARankHasDoneBeforeItGaveUp) {
  for (int i = 0; i < 50; ++i) {
    const auto errors = run_ranks(3, [](SharedCollectives& shared, int rank) {
      auto tensor = at::full({3}, rank);
      shared.broadcast(bytes_of(tensor), 24, 0);
      EXPECT_EQ(tensor[2].item<int>(), 0);
      shared.rounds().give_up();
    });
    expect_no_errors(errors);
  }
}

TEST(SharedCollectives, GoOnWhereTheNumberOfRoundsWrapsAround) {
  static constexpr int kSize = 3;
  const auto memory = make_memory(kSize);
  auto* words = reinterpret_cast<RoundWords*>(memory.get());
  constexpr std::uint32_t kLast = 0xFFFFFFFE;
  words->round = kLast;
  words->arrivals = kLast * kSize;
  auto* ranks = reinterpret_cast<RoundWords::Rank*>(memory.get() + sizeof(RoundWords));
  for (int rank = 0; rank < kSize; ++rank) ranks[rank].round = kLast;
  expect_no_errors(run_ranks(
      kSize,
      [](SharedCollectives& shared, int) {
        for (int i = 0; i < 5; ++i) {
          auto tensor = at::ones({3});
          shared.all_reduce(bytes_of(tensor), 3, at::kFloat, Reduce::sum);
          EXPECT_EQ(tensor[2].item<float>(), kSize);
        }
      },
      std::chrono::seconds{60}, std::chrono::microseconds{1}, memory.get()));
  EXPECT_EQ(words->round, 3U);
}

}  // namespace
}  // namespace ddpxx::shared_collectives_test
