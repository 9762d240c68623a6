// The gradients of segments on their way to the pieces of the ranks.
#include <cstddef>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::gradient_shards_test {
namespace {

/// The expected numbers are those that Python prints for (gradient * (1 / 3)).tolist(), in bfloat16. PyTorch's FSDP2
/// divides by the number of ranks in that type, and has no factor that is rounded.
TEST(GradientShards, ScaleGradientsIn16BitsByANumberThatIsNotRounded) {
  spawn_ranks(3, [](Group& group) {
    const auto leaf = [] { return at::zeros({4}, at::kBFloat16).requires_grad_(); };
    Arena arena{{{"a", leaf()}, {"b", leaf()}},
                {.gradients = Gradients::piece, .pieces = group.size(), .piece = group.rank()}};
    BufferPool pool;
    GradientShards shards{arena, group, /*replicas=*/nullptr, pool, /*reduction=*/std::nullopt};
    const auto numbers = [](const std::vector<double>& values) { return at::tensor(values).to(at::kBFloat16); };
    const std::vector<at::Tensor> gradients{numbers({1.0, -2.0, 3.0, 0.7}), numbers({100.0, 1e-3, 5.0, 0.0})};
    const std::vector<at::Tensor> thirds{numbers({0.333984375, -0.66796875, 1.0, 0.2333984375}),
                                         numbers({33.25, 0.0003337860107421875, 1.6640625, 0.0})};
    const auto memory = shards.borrow_with(0, gradients);
    for (std::size_t i = 0; i < arena.size(); ++i)
      EXPECT_TRUE(at::equal(Arena::part(memory, arena[i]), thirds[i])) << Arena::part(memory, arena[i]);
    shards.add(memory, arena[1], gradients[1]);  // of another backward pass
    EXPECT_TRUE(at::equal(Arena::part(memory, arena[1]), 2 * thirds[1])) << Arena::part(memory, arena[1]);
    shards.give_back(0, memory);
  });
}

}  // namespace
}  // namespace ddpxx::gradient_shards_test
