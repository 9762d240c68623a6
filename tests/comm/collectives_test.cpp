#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"

namespace ddpxx::collectives_test {
namespace {

struct Variant {
  const char* name;
  Ranks ranks;
  Backend backend;
};

class Collectives : public testing::TestWithParam<Variant> {
 protected:
  static SpawnOptions options() { return {.ranks = GetParam().ranks, .comm = {.backend = GetParam().backend}}; }
};
INSTANTIATE_TEST_SUITE_P(Everywhere, Collectives,
                         testing::Values(Variant{"processes", Ranks::processes, Backend::gloo},
                                         Variant{"threads", Ranks::threads, Backend::gloo},
                                         Variant{"processes_shm", Ranks::processes, Backend::shared_memory},
                                         Variant{"threads_shm", Ranks::threads, Backend::shared_memory}),
                         [](const auto& variant) { return variant.param.name; });

TEST_P(Collectives, AllReduceSumsMinimizesAndMaximizes) {
  spawn_ranks(
      3,
      [](Group& group) {
        auto sum = at::full({5}, 1.0 + group.rank());
        all_reduce(sum, group);
        EXPECT_TRUE(at::equal(sum, at::full({5}, 6.0)));
        auto least = at::full({2}, group.rank(), at::kLong);
        all_reduce(least, group, Reduce::min);
        EXPECT_EQ(least[0].item<int>(), 0);
        auto most = at::full({2}, group.rank(), at::kLong);
        all_reduce(most, group, Reduce::max);
        EXPECT_EQ(most[1].item<int>(), 2);
      },
      options());
}

TEST_P(Collectives, ReduceScatterAndAllGatherAreInverse) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto piece = at::zeros({3});
        reduce_scatter(piece, at::arange(6, at::kFloat), group);
        EXPECT_TRUE(at::equal(piece, 2 * at::arange(3 * group.rank(), 3 * group.rank() + 3, at::kFloat)));
        auto rows = at::zeros({2, 2});
        reduce_scatter(rows, at::arange(8, at::kFloat), group);
        EXPECT_TRUE(at::equal(rows.flatten(), 2 * at::arange(4 * group.rank(), 4 * group.rank() + 4, at::kFloat)));
        auto whole = at::zeros({6});
        all_gather(whole, piece, group);
        EXPECT_TRUE(at::equal(whole, 2 * at::arange(6, at::kFloat)));
      },
      options());
}

TEST_P(Collectives, BroadcastGivesTheRootsBytes) {
  spawn_ranks(
      3,
      [](Group& group) {
        auto tensor = at::full({4}, group.rank());
        broadcast(tensor, group, 2);
        EXPECT_TRUE(at::equal(tensor, at::full({4}, 2)));
        barrier(group);
      },
      options());
}

TEST_P(Collectives, TextsOfDifferentLengthsTravel) {
  spawn_ranks(
      3,
      [](Group& group) {
        const auto texts = all_gather_text(std::string(static_cast<std::size_t>(group.rank() * 5), 'x'), group);
        ASSERT_EQ(texts.size(), 3u);
        EXPECT_EQ(texts[0], "");
        EXPECT_EQ(texts[2], "xxxxxxxxxx");
        EXPECT_EQ(broadcast_text(group.rank() == 1 ? "one" : "", group, 1), "one");
        EXPECT_EQ(broadcast_text("", group), "");
      },
      options());
}

TEST_P(Collectives, RefusePartsThatAreNotThoseOfTheTensor) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto output = at::zeros({3});
        const auto input = at::ones({3});
        EXPECT_EQ(code_of([&] { all_to_all(output, input, {1, 2}, {-1, 4}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(output, input, {-1, 4}, {1, 2}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(output, input, {1, 2}, {2, 2}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(output, input, {1, 1, 1}, {1, 2}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(output, input, {}, {1, 2}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(output, input.to(at::kInt), {1, 2}, {1, 2}, group); }), Errc::config);
        barrier(group);  // nothing was sent
      },
      options());
}

TEST_P(Collectives, RefuseTensorsWithGaps) {
  spawn_ranks(
      2,
      [](Group& group) {
        const auto memory = at::arange(8, at::kFloat);
        const auto column = memory.view({4, 2}).select(1, 0);
        auto two = at::zeros({2}), four = at::zeros({4}), eight = at::zeros({8});
        EXPECT_EQ(code_of([&] { all_reduce(column, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { broadcast(column, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { reduce_scatter(two, column, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { reduce_scatter(column, eight, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_gather(eight, column, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_gather(column, two, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(four, column, {}, {}, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_to_all(column, four, {}, {}, group); }), Errc::config);
        EXPECT_TRUE(at::equal(memory, at::arange(8, at::kFloat)));
        auto transposed = at::full({3, 2}, group.rank() + 1.0).t();  // in another order, without gaps
        all_reduce(transposed, group);
        EXPECT_TRUE(at::equal(transposed, at::full({2, 3}, 3.0)));
        broadcast(transposed.add_(group.rank()), group, 1);
        EXPECT_TRUE(at::equal(transposed, at::full({2, 3}, 4.0)));
      },
      options());
}

TEST_P(Collectives, RefuseShapesThatDoNotFit) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto five = at::zeros({5}), two = at::zeros({2});
        EXPECT_EQ(code_of([&] { reduce_scatter(five, two, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { reduce_scatter(two, five, group); }), Errc::config);
        EXPECT_EQ(code_of([&] { all_gather(five, two, group); }), Errc::config);
        auto bytes = at::zeros({4}, at::kByte);
        EXPECT_EQ(code_of([&] { all_gather(bytes, at::zeros({1}, at::kShort), group); }), Errc::config)
            << "types differ, and the numbers of bytes fit";
        barrier(group);
      },
      options());
}

TEST_P(Collectives, BooleanValuesAreSummedByOr) {
  spawn_ranks(
      3,
      [](Group& group) {
        auto flags = at::tensor({1, 1, 0}).to(at::kBool);
        if (group.rank() != 1) flags[1].fill_(false);
        all_reduce(flags, group);
        EXPECT_TRUE(at::equal(flags.view(at::kByte), at::tensor({1, 1, 0}).to(at::kByte))) << flags.view(at::kByte);
      },
      options());
}

TEST_P(Collectives, AllGatherTakesTensorsOfAnyDimensions) {
  spawn_ranks(
      2,
      [](Group& group) {
        auto rows = at::zeros({2, 3});
        all_gather(rows, at::full({3}, static_cast<double>(group.rank()), at::kFloat), group);
        EXPECT_TRUE(at::equal(rows, at::tensor({0.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F}).view({2, 3})));
        auto scalars = at::zeros({2});
        all_gather(scalars, at::scalar_tensor(group.rank() + 1.0), group);
        EXPECT_TRUE(at::equal(scalars, at::tensor({1.0F, 2.0F})));
        auto none = at::zeros({0});
        all_gather(none, at::zeros({0}), group);
      },
      options());
}

TEST_P(Collectives, BroadcastAndAllGatherSendEveryType) {
  spawn_ranks(
      2,
      [](Group& group) {
        for (const auto type : {at::kShort, at::kBool, at::kComplexFloat, at::kFloat8_e4m3fn, at::kDouble}) {
          auto sent = at::full({3}, group.rank(), at::kFloat).to(type);
          auto whole = at::zeros({6}, at::kFloat).to(type);
          all_gather(whole, sent, group);
          EXPECT_TRUE(at::equal(whole.to(at::kComplexDouble), at::tensor({0, 0, 0, 1, 1, 1}).to(at::kComplexDouble)))
              << type;
          broadcast(sent, group, 1);
          EXPECT_TRUE(at::equal(sent.to(at::kComplexDouble), at::ones({3}, at::kComplexDouble))) << type;
        }
        auto shorts = at::zeros({2}, at::kShort);
        reduce_scatter(shorts, at::arange(4).to(at::kShort), group);
        EXPECT_TRUE(at::equal(shorts, at::tensor({4 * group.rank(), 4 * group.rank() + 2}).to(at::kShort))) << shorts;
        auto needs_gradient = at::full({2}, static_cast<double>(group.rank())).requires_grad_();
        broadcast(needs_gradient, group, 1);
        EXPECT_EQ(needs_gradient[0].item<int>(), 1);
      },
      options());
}

void expect_nothing_recorded(const Group& group) {
  const auto leaf = [](std::int64_t size) { return at::ones({size}).requires_grad_(); };
  const auto W = group.size();
  const auto expect = [&](const char* name, std::int64_t output_size, std::int64_t input_size, const auto& collective) {
    auto output = at::zeros({output_size}), trains = leaf(output_size);
    collective(output, leaf(input_size));
    EXPECT_FALSE(output.requires_grad()) << name;
    collective(trains, at::ones({input_size}));
    EXPECT_TRUE(trains.is_leaf()) << name;
    EXPECT_TRUE(at::equal(trains, output)) << name;
  };
  expect("all_gather", 2 * W, 2, [&](auto& output, const auto& input) { all_gather(output, input, group); });
  expect("reduce_scatter", 2, 2 * W, [&](auto& output, const auto& input) { reduce_scatter(output, input, group); });
  expect("all_to_all", 2 * W, 2 * W,
         [&](auto& output, const auto& input) { all_to_all(output, input, {}, {}, group); });
}
TEST_P(Collectives, RecordNothingForAutograd) {
  spawn_ranks(
      2, [](Group& group) { expect_nothing_recorded(group); }, options());
}
TEST(WorldOfOne, RecordsNothingForAutogradEither) { expect_nothing_recorded(Group{}); }

TEST(WorldOfOne, CommunicatesNothingAndKeepsValues) {
  Group alone;
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  auto tensor = at::arange(4, at::kFloat);
  all_reduce(tensor, alone);
  broadcast(tensor, alone);
  barrier(alone);
  EXPECT_TRUE(at::equal(tensor, at::arange(4, at::kFloat)));
  auto out = at::zeros({4});
  all_gather(out, tensor, alone);
  EXPECT_TRUE(at::equal(out, tensor));
  alone.leave();
}

TEST(Group, AnErrorNamesOpBytesAndRank) {
  try {
    spawn_ranks(2, [](Group& group) {
      barrier(group);  // without it, a rank that exits early would make the other one fail to connect
      if (group.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        std::_Exit(0);
      }
      all_reduce(at::zeros({256}), group);
    });
    FAIL() << "the lost peer went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0: all_reduce failed"), std::string::npos) << text;
    EXPECT_NE(text.find("bytes=1024"), std::string::npos) << text;
    EXPECT_NE(text.find("rank=0"), std::string::npos) << text;
  }
}

/// A backend whose all-reduce throws `error` when it is started.
template <class Cause>
class Refusing : public detail::RecordingBackend {
 public:
  explicit Refusing(Cause cause) : RecordingBackend{0, 2, std::make_shared<Recording>()}, cause_{std::move(cause)} {}
  WorkRef allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override { throw cause_; }

 private:
  Cause cause_;
};

template <class Cause>
Error error_of_start(Cause cause) {
  const Group group{c10::make_intrusive<Refusing<Cause>>(std::move(cause))};
  try {
    all_reduce(at::zeros({4}), group);
  } catch (const Error& error) {
    return error;
  }
  return {Errc::stopped, "no error"};
}

TEST(Group, AnErrorAtTheStartOfACollectiveKeepsItsKind) {
  const c10::SourceLocation here{"", "", 0};
  const auto code_of = [](auto cause) { return error_of_start(std::move(cause)).code(); };
  EXPECT_EQ(code_of(c10::ValueError{here, "Tensors must be contiguous"}), Errc::config);
  EXPECT_EQ(code_of(c10::TypeError{here, "Input tensor data type is not supported for NCCL process group"}),
            Errc::config);
  EXPECT_EQ(code_of(c10::OutOfMemoryError{here, "CUDA out of memory. Tried to allocate 2.00 GiB"}), Errc::memory);
  EXPECT_EQ(code_of(c10::DistBackendError{here,
                                          "NCCL error: unhandled cuda error\nncclUnhandledCudaError: Call to CUDA "
                                          "function failed.\nLast error:\nCuda failure 2 'out of memory'"}),
            Errc::memory);
  EXPECT_EQ(code_of(std::bad_alloc{}), Errc::memory);
  EXPECT_EQ(code_of(c10::DistBackendError{here, "NCCL communicator was aborted on rank 0"}), Errc::peer);
  EXPECT_EQ(code_of(std::runtime_error{"Connection closed by peer"}), Errc::peer);
  EXPECT_THROW(error_of_start(c10::AcceleratorError{here, 700, "CUDA error: an illegal memory access"}),
               c10::AcceleratorError);
  const std::string text = error_of_start(c10::ValueError{here, "Tensors must be contiguous"}).what();
  EXPECT_NE(text.find("all_reduce failed: the backend refuses its tensors; op=all_reduce; bytes=16"), std::string::npos)
      << text;
  EXPECT_NE(text.find("cause=Tensors must be contiguous"), std::string::npos) << text;
}

/// A backend whose all-reduce starts, and throws `error` when it is waited for.
template <class Cause>
class FailingLater : public detail::RecordingBackend {
 public:
  explicit FailingLater(Cause cause)
      : RecordingBackend{0, 2, std::make_shared<Recording>()}, cause_{std::move(cause)} {}
  WorkRef allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<FailingWork>(cause_);
  }

 private:
  class FailingWork : public c10d::Work {
   public:
    explicit FailingWork(const Cause& cause) : cause_{cause} {}
    bool wait(std::chrono::milliseconds) override { throw cause_; }

   private:
    Cause cause_;
  };
  Cause cause_;
};

TEST(Group, AnErrorAtTheEndOfACollectiveKeepsItsKindOnEveryWait) {
  const c10::SourceLocation here{"", "", 0};
  const auto expect_code = [](auto cause, Errc code) {
    const Group group{c10::make_intrusive<FailingLater<decltype(cause)>>(cause)};
    auto pending = start_all_reduce(at::zeros({4}), group);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(code_of([&] { pending.wait(); }), code) << cause.what();
    EXPECT_TRUE(pending.under_way());
  };
  expect_code(c10::OutOfMemoryError{here, "CUDA out of memory. Tried to allocate 2.00 GiB"}, Errc::memory);
  expect_code(std::bad_alloc{}, Errc::memory);
  expect_code(c10::Error{here, "Operation timed out!"}, Errc::peer);
  expect_code(std::runtime_error{"Connection closed by peer"}, Errc::peer);
  const c10::AcceleratorError cause{here, 700, "CUDA error: an illegal memory access"};
  const Group group{c10::make_intrusive<FailingLater<c10::AcceleratorError>>(cause)};
  auto pending = start_all_reduce(at::zeros({4}), group);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(pending.wait(), c10::AcceleratorError);
}

// Gloo sends the values, and each rank adds them up when it waits.
TEST(Group, AReduceScatterOverGlooThatCannotAddUpFailsOnEveryWait) {
  spawn_ranks(2, [](Group& group) {
    auto pending = start_reduce_scatter(at::zeros({2}, at::kLong), at::ones({4}), group);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(code_of([&] { pending.wait(); }), Errc::config);
  });
}

TEST(Group, GlooRefusesTypesThatItDoesNotAdd) {
  spawn_ranks(2, [](Group& group) {
    auto shorts = at::zeros({2}, at::kShort);
    EXPECT_EQ(code_of([&] { all_reduce(shorts, group); }), Errc::config);
    EXPECT_EQ(code_of([&] { all_to_all(shorts, at::zeros({2}, at::kShort), {}, {}, group); }), Errc::config);
    all_reduce(shorts.to(at::kInt), group);
  });
}

TEST(Group, GlooRefusesAnOutputOfAnotherType) {
  spawn_ranks(2, [](Group& group) {
    try {
      auto whole = at::zeros({4});
      all_gather(whole, at::zeros({2}, at::kLong), group);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config) << error.what();
    }
  });
}

/// A backend whose shutdown fails because its peers are gone.
class Deserted : public detail::RecordingBackend {
 public:
  Deserted() : RecordingBackend{0, 2, std::make_shared<Recording>()} {}
  void shutdown() override { throw std::runtime_error{"connection reset"}; }
};

TEST(Group, APartThatCannotEndIsAPeerThatIsGone) {
  Group whole{c10::make_intrusive<detail::RecordingBackend>(0, 2, std::make_shared<Recording>()),
              c10::make_intrusive<c10d::HashStore>(), at::kCPU,
              [](auto&&...) { return Group{c10::make_intrusive<Deserted>()}; }};
  const auto part = whole.split({.color = 0, .rank = 0, .size = 2});
  try {
    whole.leave();
    ADD_FAILURE() << "leave() did not report the part's error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    EXPECT_NE(std::string{error.what()}.find("connection reset"), std::string::npos) << error.what();
  }
}

/// A backend whose collectives fail because a rank is gone.
class Lonely : public detail::RecordingBackend {
 public:
  Lonely(int rank, int size) : RecordingBackend{rank, size, std::make_shared<Recording>()} {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    throw c10::DistBackendError{{__func__, __FILE__, __LINE__}, "connection closed"};
  }
};

TEST(Group, AnErrorOfAPartNamesTheRankOfTheRun) {
  Group whole{c10::make_intrusive<Lonely>(6, 8), c10::make_intrusive<c10d::HashStore>(), at::kCPU,
              [](auto&&, int rank, int size) { return Group{c10::make_intrusive<Lonely>(rank, size)}; }};
  const auto error_in = [](const Group& group) {
    try {
      all_reduce(at::ones(1), group);
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{"no error"};
  };
  auto part = whole.split({.color = 0, .rank = 1, .size = 2});
  EXPECT_NE(error_in(whole).find("rank=6; world_size=8; "), std::string::npos) << error_in(whole);
  EXPECT_NE(error_in(part).find("rank=6; ranks_of_part=2; "), std::string::npos) << error_in(part);
}

TEST(Group, OverGlooKeepsTheProcesssActionForBrokenPipes) {
  struct ::sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  spawn_ranks(2, [&](Group&) {
    struct ::sigaction chosen {};
    ::sigaction(SIGPIPE, nullptr, &chosen);
    EXPECT_EQ(chosen.sa_handler, before.sa_handler);
    ::sigset_t blocked;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0);
  });
}

// SIGPIPE is blocked in Gloo's threads, so that a write to a lost peer returns an error instead of ending this process.
TEST(Group, OverGlooWritesInThreadsThatBlockBrokenPipes) {
  spawn_ranks(2, [](Group& group) {
    barrier(group);
    // Rank 0 also has a thread for its store, which passes MSG_NOSIGNAL to each write and needs no block.
    if (group.rank() == 0) return;
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
      if (task.path().filename() == std::to_string(::getpid())) continue;
      std::ifstream status{task.path() / "status"};
      std::string word;
      while (status >> word && word != "SigBlk:") {
      }
      status >> word;
      EXPECT_NE(std::stoull(word, nullptr, 16) & (1ULL << (SIGPIPE - 1)), 0U) << task.path();
      ++threads;
    }
    EXPECT_GE(threads, 3) << "expected Gloo's device thread and two worker threads";
  });
}

TEST(Group, OverGlooIgnoresBrokenPipesInAProgramOfOursUnlessItHasChosen) {
  const ProgramFrame frame;
  spawn_ranks(2, [](Group&) {
    struct ::sigaction chosen {};
    ::sigaction(SIGPIPE, nullptr, &chosen);
    EXPECT_EQ(chosen.sa_handler, SIG_IGN) << "SIGPIPE from a lost peer would end this process without a message";
  });
  const auto former = ::signal(SIGPIPE, [](int) {});
  spawn_ranks(2, [](Group&) {
    struct ::sigaction chosen {};
    ::sigaction(SIGPIPE, nullptr, &chosen);
    EXPECT_NE(chosen.sa_handler, SIG_IGN);
  });
  ::signal(SIGPIPE, former);
}

TEST(Group, DestroyedWithQueuedWorkDoesNotWaitForASilentPeer) {
  // The peer is silent for 600 ms; a destructor that waited for the peer would take as long. A busy machine gets ten
  // tries.
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 10 && shortest >= std::chrono::milliseconds{100}; ++i) {
    int result[2];
    ASSERT_EQ(::pipe(result), 0);
    spawn_ranks(2, [&](Group& group) {
      barrier(group);  // without it, a rank that exits early would make the other one fail to connect
      if (group.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds{600});
        std::_Exit(0);
      }
      const auto before = std::chrono::steady_clock::now();
      {
        Group dropped = std::move(group);
        auto queued = start_all_reduce(at::zeros({1024}), dropped);
      }
      const auto took = std::chrono::steady_clock::now() - before;
      EXPECT_EQ(::write(result[1], &took, sizeof took), static_cast<ssize_t>(sizeof took));
    });
    std::chrono::steady_clock::duration took{};
    ASSERT_EQ(::read(result[0], &took, sizeof took), static_cast<ssize_t>(sizeof took));
    shortest = std::min(shortest, took);
  }
  EXPECT_LT(shortest, std::chrono::milliseconds{100});
}

}  // namespace
}  // namespace ddpxx::collectives_test
