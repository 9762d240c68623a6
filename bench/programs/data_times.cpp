// data_times — the time in which a file of tokens becomes batches of int64, shuffled, on one rank. Prints a line of
// JSON: the milliseconds until the first batch, with the order of all samples, and the mean time of a later one.
//
//   data_times FILE SAMPLES TOKENS WORKERS BATCHES     a batch has SAMPLES samples of TOKENS tokens
//
// bench/peers/data_times.py does the same in Python.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/distributed_sampler.hpp>
#include <ddpxx/data/loader.hpp>
#include <ddpxx/data/token_dataset.hpp>
#include <ddpxx/launch/program.hpp>

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>{Clock::now() - begin}.count();
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("data_times", [&] {
    if (argc != 6) throw ddpxx::Error{ddpxx::Errc::config, "usage: data_times FILE SAMPLES TOKENS WORKERS BATCHES"};
    const auto number = [&](int i) { return std::atoll(argv[i]); };
    const auto begin = Clock::now();
    const auto dataset = std::make_shared<const ddpxx::TokenDataset>(
        ddpxx::TokenDatasetConfig{.path = argv[1], .block_size = number(3)});
    ddpxx::Loader loader{dataset, ddpxx::DistributedSampler{dataset->size(), {}},
                         ddpxx::LoaderOptions{.batch_size = number(2), .num_workers = number(4)}};
    std::int64_t tokens = loader.next().value().num_tokens;
    const double first = milliseconds_since(begin);
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < number(5); ++i) tokens += loader.next().value().num_tokens;
    const double batch = milliseconds_since(start) / static_cast<double>(number(5));
    const nlohmann::json line = {{"first", first}, {"batch", batch}, {"tokens", tokens}};
    std::cout << line.dump() << '\n';
  });
}
