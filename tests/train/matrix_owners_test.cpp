// Each matrix is changed once, by its owner, wherever its elements lie.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/matrix_owners.hpp>

namespace ddpxx::matrix_owners_test {
namespace {

const std::vector<std::vector<std::int64_t>> kShapes{{5, 3}, {4}, {40, 7}, {2, 33}, {1, 1}, {9, 9}};

/// Parameters of these shapes, one of which is not a matrix, with the values 0, 1, 2 and so on.
std::vector<NamedParameter> make_parameters() {
  std::vector<NamedParameter> parameters;
  for (std::size_t i = 0; i < kShapes.size(); ++i)
    parameters.push_back(
        {"p" + std::to_string(i), at::arange(c10::multiply_integers(kShapes[i]), at::kFloat).view(kShapes[i])});
  return parameters;
}

void expect_each_matrix_changed_once(Group& group, int pieces) {
  const Arena arena{make_parameters(), {.pieces = pieces, .piece = group.rank() % pieces}};
  const std::vector<std::size_t> matrices{0, 2, 3, 4, 5};
  const MatrixOwners owners{arena, matrices, group};
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto [begin, end] = owners.range(i, group.rank());
    parts.push_back(at::arange(begin, end, at::kFloat));
  }
  auto changed = at::zeros({1}, at::kLong);
  owners.transform(parts, [&](const at::Tensor& matrix) {
    changed += 1;
    EXPECT_TRUE(at::equal(matrix.reshape(-1), at::arange(matrix.numel(), at::kFloat)))
        << "the owner must see the whole matrix";
    return matrix * 2 + static_cast<double>(matrix.size(0));
  });
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto [begin, end] = owners.range(i, group.rank());
    const auto expected = at::arange(begin, end, at::kFloat) * 2 + static_cast<double>(kShapes[matrices[i]][0]);
    EXPECT_TRUE(at::equal(parts[i], expected)) << i << " on rank " << group.rank();
  }
  EXPECT_LE(changed.item<std::int64_t>(), 2) << "the matrices must be shared by the ranks";
  all_reduce(changed, group);
  EXPECT_EQ(changed.item<std::int64_t>(), static_cast<std::int64_t>(matrices.size()))
      << "each matrix must be changed once";
}

TEST(MatrixOwners, ChangeEachMatrixOnceWhereEachRankHoldsAll) {
  spawn_ranks(4, [](Group& group) { expect_each_matrix_changed_once(group, 1); });
}
TEST(MatrixOwners, ChangeEachMatrixOnceWhereEachRankHoldsAPiece) {
  spawn_ranks(4, [](Group& group) { expect_each_matrix_changed_once(group, 4); });
}
TEST(MatrixOwners, ChangeEachMatrixOnceWhereRowsOfRanksHoldPieces) {
  spawn_ranks(4, [](Group& group) { expect_each_matrix_changed_once(group, 2); });
}

TEST(SliceEntries, SayWhichElementsOfWhichParametersASliceHolds) {
  const Arena arena{make_parameters(), {.pieces = 3, .piece = 1}};
  std::int64_t elements = 0;
  for (const auto& slice : arena.slices())
    for (const auto& entry : slice.entries()) {
      const auto part = slice.values.narrow(0, entry.begin, entry.size);
      EXPECT_TRUE(at::equal(part, at::arange(entry.offset, entry.offset + entry.size, at::kFloat)))
          << entry.parameter->name;
      EXPECT_EQ(entry.parameter->shape, kShapes[entry.parameter->index]);
      elements += entry.size;
    }
  EXPECT_GT(elements, 0);
}

}  // namespace
}  // namespace ddpxx::matrix_owners_test
