// A program for spawn_test.cpp: prints its rank, its arguments, and the number of its parent process.
#include <chrono>
#include <iostream>
#include <string_view>
#include <thread>
#include <unistd.h>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/program.hpp>

int main(int argc, char** argv) {
  ddpxx::run_program("program", [&] {
    const auto rank = ddpxx::environment("RANK").value_or("none");
    std::cout << "rank " << rank << " of " << ddpxx::environment("WORLD_SIZE").value_or("none") << ':';
    for (int i = 1; i < argc; ++i) std::cout << ' ' << argv[i];
    std::cout << std::endl;
    const std::string_view order = argc > 1 ? argv[1] : "";
    if (order == "fail" && rank == "1") throw ddpxx::Error{ddpxx::Errc::storage, "no space"};
    if (order == "wait" || order == "fail") std::this_thread::sleep_for(std::chrono::hours{1});
  });
}
