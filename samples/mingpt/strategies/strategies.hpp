// strategies.hpp — what mingpt is compiled with: a function for each strategy, in a source file of its own.
#pragma once

#include <memory>

#include <ddpxx/comm/group.hpp>

struct RunConfig;
namespace ddpxx {
class CharDataset;
}

using Text = std::shared_ptr<const ddpxx::CharDataset>;

void train_single(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_dp(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_ddp(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_zero1(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_zero2(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_fsdp(const RunConfig& config, ddpxx::Group& group, const Text& text);
void train_hsdp(const RunConfig& config, ddpxx::Group& group, const Text& text);
