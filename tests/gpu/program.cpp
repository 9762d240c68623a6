// program.cpp — the smallest program for GPUs: it says on which device it computes.
#include <iostream>

#include <ATen/detail/CUDAHooksInterface.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

int main() {
  ddpxx::run_program("cuda_program", [] {
    if (!at::detail::getCUDAHooks().isBuilt())
      throw ddpxx::Error{ddpxx::Errc::config, "libtorch_cuda is not loaded, although the program links ddpxx::cuda"};
    auto group = ddpxx::join(ddpxx::torchrun_environment(), "auto");
    std::cout << "device " << group.device() << std::endl;
    group.leave();
    return 0;
  });
}
