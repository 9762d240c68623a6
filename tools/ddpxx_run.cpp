// ddpxx_run.cpp — starts a program once per rank, with the variables that torchrun sets.
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/agent.hpp>
#include <ddpxx/launch/launch_plan.hpp>

int main(int argc, char** argv) {
  // A closed standard descriptor would become one of the ranks' pipes: fill the gaps.
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) break;
  }
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto plan = ddpxx::parse_launch(arguments);
    if (!plan) {
      std::cout << ddpxx::launch_help();
      return 0;
    }
    return ddpxx::Agent{*plan}.run();
  } catch (const ddpxx::Error& error) {
    std::cerr << "ddpxx-run: " << ddpxx::harmless(error.what()) << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "ddpxx-run: " << ddpxx::harmless(error.what()) << '\n';
    return 1;
  }
}
