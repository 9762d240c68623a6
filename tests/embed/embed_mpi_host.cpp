// embed_mpi_host.cpp — an MPI program whose processes train together, and which uses MPI before and after the training.
// It returns 1 if an expectation is violated.
//
//     mpirun -n 2 embed_mpi_host
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <mpi.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/sum.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/mpi.hpp>
#include <ddpxx/train/trainer.hpp>

#include "points.hpp"

namespace {

using Train = ddpxx::Trainer<embed::Line, embed::Points>;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("embed_mpi_host: FAILED: %s\n", what);
}

/// The sum of the parameters, to compare the parameters of ranks.
double fingerprint(const embed::Line& model) {
  double sum = 0;
  for (const auto& parameter : model.parameters()) sum += parameter.sum().item<double>();
  return sum;
}

void train(int rank, int size) {
  auto group = ddpxx::connect_mpi(MPI_COMM_WORLD);
  expect(group.rank() == rank && group.size() == size, "ranks have the numbers that MPI gives them");

  const auto model = std::make_shared<embed::Line>();
  Train::Config config;
  config.batch_size = 4;
  config.training = {.max_steps = 5, .max_epochs = 0};
  Train trainer{group, model, std::make_shared<embed::Points>(), config};
  trainer.resume();
  while (!trainer.finished()) trainer.step();
  trainer.close();
  expect(trainer.steps_done() == 5, "the training comes to its end");

  double mine = fingerprint(*model), of_zero = mine;
  MPI_Bcast(&of_zero, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  expect(mine == of_zero, "all ranks hold equal parameters");
  group.leave(std::chrono::seconds{60});
}

/// Makes a group of some of the processes, from a communicator of theirs.
void connect_alone(int rank) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
  auto group = ddpxx::connect_mpi(own);
  expect(group.size() == 1, "a communicator of one process is a world of one");
  group.leave();
  MPI_Comm_free(&own);
}

}  // namespace

int main(int argc, char** argv) try {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto rank_info = ddpxx::mpi_rank_info(MPI_COMM_WORLD);
  expect(rank_info.local_rank.value == rank && rank_info.local_world_size.value == size,
         "all processes are on one machine");

  train(rank, size);
  connect_alone(rank);
  train(rank, size);

  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0 && failures == 0) std::printf("embed_mpi_host: %d ranks end by their own return\n", size);
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::printf("embed_mpi_host: FAILED: %s\n", error.what());
  return 1;
}
