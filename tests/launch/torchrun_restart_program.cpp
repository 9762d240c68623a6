// One of two ranks, for torchrun_restarts.py. In the first start rank 1 fails, and rank 0 sleeps, so that torchrun
// counts a failure on one machine only. A later start writes what rank RANK has seen to FOLDER/RANK.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <torch/torch.h>

#include <ddpxx/ddpxx.hpp>

int main() {
  const std::filesystem::path folder{ddpxx::environment("FOLDER").value()};
  const bool is_restarted = exists(folder / "failed");
  auto group = ddpxx::join(ddpxx::torchrun_environment(), "cpu");
  if (!is_restarted) {
    if (group.rank() == 0) ::pause();  // until torchrun ends this process
    std::ofstream{folder / "failed"};
    std::_Exit(3);
  }
  const auto sum = at::full({}, group.rank() + 1.0);
  ddpxx::all_reduce(sum, group);
  std::ofstream{folder / std::to_string(group.rank())}
      << "restarts " << ddpxx::environment("TORCHELASTIC_RESTART_COUNT").value() << ", sum " << sum.item<double>();
  group.leave();
}
