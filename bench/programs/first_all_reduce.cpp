// first_all_reduce.cpp — joins the run and sums one number over its ranks, for `./dev bench start`.
#include <iostream>

#include <ATen/ops/ones.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

int main() {
  ddpxx::run_program("first_all_reduce", [] {
    auto group = ddpxx::join(ddpxx::torchrun_environment(), "cpu");
    auto sum = at::ones({1});
    ddpxx::all_reduce(sum, group);
    if (group.rank() == 0) std::cout << "sum " << sum.item<float>() << std::endl;
    group.leave();
  });
}
