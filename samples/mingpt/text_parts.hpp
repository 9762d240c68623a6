// text_parts.hpp — the parts of the text for training and for evaluation, as the configuration sets them.
#pragma once

#include <memory>
#include <string>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/held_out_text.hpp>

#include "run_config.hpp"
#include "training_text.hpp"

/// Errors  `data` if there is no sample to evaluate on, for a run that evaluates and for `mingpt evaluate`, which
///         `only_evaluates`.
inline ddpxx::WindowParts<TrainingText> text_parts(const RunConfig& config,
                                                   const std::shared_ptr<const TrainingText>& text,
                                                   bool only_evaluates) {
  const auto& data = config.data;
  const auto parts = [&] {
    if (!data.val_path.empty())
      return ddpxx::hold_out_text(
          text, std::make_shared<const TrainingText>(data, data.validation_text(), text->vocabulary()));
    return data.split == "random" ? ddpxx::hold_out_random(text, data.train_split, config.training.seed)
                                  : ddpxx::hold_out_tail(text, data.train_split);
  }();
  if (only_evaluates && !parts.validation)
    throw ddpxx::Error{ddpxx::Errc::data,
                       "there is no text to evaluate on: data.train_split=" + ddpxx::real_text(data.train_split) +
                           " leaves less than one sample of data.block_size=" + std::to_string(data.text.block_size) +
                           ' ' + text->unit() + ": name one by data.val_path=FILE, or lower data.train_split"};
  if (const auto setting = config.training.evaluation_setting(); !setting.empty() && !parts.validation)
    throw ddpxx::Error{ddpxx::Errc::data,
                       "training." + setting +
                           ": the text held out for validation is shorter than one sample of "
                           "data.block_size=" +
                           std::to_string(data.text.block_size) + ' ' + text->unit() +
                           ": use a longer text, a smaller data.block_size or a smaller data.train_split, "
                           "or set " +
                           config.training.settings_without_evaluations()};
  return parts;
}
