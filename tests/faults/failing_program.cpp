// A training whose rank 1 fails in the way FAULT at the place FAULT_AT, for failing_ranks_test.cpp. Restarted ranks do
// not fail.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <torch/torch.h>

#include <ddpxx/ddpxx.hpp>

namespace {

std::string variable(const char* name) { return ddpxx::environment(name).value_or(""); }

/// Fails here if the variables say so; at other places than the start, when the place is reached for the third time.
void reach(const std::string& place) {
  static std::atomic<int> times = 0;
  const auto fault = variable("FAULT");
  if (place != variable("FAULT_AT") || variable("RANK") != "1" || variable("TORCHELASTIC_RESTART_COUNT") != "0") return;
  if (place != "start" && ++times != 3) return;
  if (fault == "exit") std::_Exit(0);
  if (fault == "throw") throw std::runtime_error{"the valve is stuck"};
  if (fault == "memory") throw std::bad_alloc{};
  if (fault == "terminate") std::thread{[] { std::terminate(); }}.join();
  if (fault == "hang") std::this_thread::sleep_for(std::chrono::hours{1});
  ::kill(::getpid(), std::stoi(fault));  // otherwise it is the number of a signal
}

/// Sample i is the point at i / 512 on a line.
struct Line {
  std::int64_t size() const { return 512; }
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    reach("data");
    const auto x =
        at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}).to(at::kFloat).unsqueeze(1) / 512;
    return {.inputs = x, .targets = 3 * x + 1, .num_tokens = x.size(0)};
  }
};

struct Net : torch::nn::Module {
  Net() : linear{register_module("linear", torch::nn::Linear(1, 1))} {}
  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    reach(is_training() ? "forward" : "evaluation");
    auto loss = (linear(batch.inputs) - batch.targets).square().sum();
    if (loss.requires_grad()) loss.register_hook([](const at::Tensor&) { reach("backward"); });
    return {loss};
  }
  torch::nn::Linear linear;
};

using Train = ddpxx::Trainer<Net, Line>;

struct Config {
  Train::Config train;
  ddpxx::ConnectConfig comm;
  static constexpr auto describe() {
    return ddpxx::fields(ddpxx::flatten<&Config::train>(),
                         ddpxx::field<&Config::comm>("How the ranks meet and communicate"));
  }
};

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("failing", [&] {
    reach("start");
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device, config.comm);
    auto net = ddpxx::make_model<Net>(training.seed, group.device());
    Train trainer{group,        net,    std::make_shared<const Line>(),
                  config.train, record, {.validation = std::make_shared<const Line>()}};
    trainer.fit();
    group.leave();
  });
}
