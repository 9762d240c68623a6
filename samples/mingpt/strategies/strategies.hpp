// strategies.hpp — a function for each strategy that mingpt is compiled with; each has a source file of its own.
#pragma once

#include <memory>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/config/parsed_config.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>

struct RunConfig;
class TrainingText;

/// The task of one start of the program.
struct Run : ddpxx::ParsedConfig<RunConfig> {
  bool only_evaluates = false;  ///< If true, only the chosen snapshot is evaluated; nothing is trained or written.
  /// The snapshot whose weights the model begins with, equal on all ranks: the one to evaluate, or that of init_from.
  /// None if it has no place.
  ddpxx::SnapshotChoice chosen = {};
  bool loads_file = false;  ///< The model begins with the weights of a file, which init_from names.
  bool resumes = false;     ///< The run resumes from a snapshot of its own, or from the one that snapshot= names.
};

using Text = std::shared_ptr<const TrainingText>;

void train_single(const Run& run, ddpxx::Group& group, const Text& text);
void train_dp(const Run& run, ddpxx::Group& group, const Text& text);
void train_ddp(const Run& run, ddpxx::Group& group, const Text& text);
void train_zero1(const Run& run, ddpxx::Group& group, const Text& text);
void train_zero2(const Run& run, ddpxx::Group& group, const Text& text);
void train_fsdp(const Run& run, ddpxx::Group& group, const Text& text);
void train_hsdp(const Run& run, ddpxx::Group& group, const Text& text);
