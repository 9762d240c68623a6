// strategies.hpp — what mingpt is compiled with: a function for each strategy, in a source file of its own.
#pragma once

#include <memory>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/config/parsed_config.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>

struct RunConfig;
namespace ddpxx {
class CharDataset;
}

/// What one start of the program is to do.
struct Run : ddpxx::ParsedConfig<RunConfig> {
  bool only_evaluates = false;        ///< The snapshot that is chosen; nothing is trained or written.
  ddpxx::SnapshotChoice chosen = {};  ///< The same on all ranks. Of an evaluation only.
};

using Text = std::shared_ptr<const ddpxx::CharDataset>;

void train_single(const Run& run, ddpxx::Group& group, const Text& text);
void train_dp(const Run& run, ddpxx::Group& group, const Text& text);
void train_ddp(const Run& run, ddpxx::Group& group, const Text& text);
void train_zero1(const Run& run, ddpxx::Group& group, const Text& text);
void train_zero2(const Run& run, ddpxx::Group& group, const Text& text);
void train_fsdp(const Run& run, ddpxx::Group& group, const Text& text);
void train_hsdp(const Run& run, ddpxx::Group& group, const Text& text);
