// ddpxx/train/training_config.hpp — what a user may set about a run.
#pragma once

#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

inline std::vector<FieldError> TrainingConfig::check() const {
  std::string save_dir_error;
  if (!save_dir.empty()) try {
      open_storage(save_dir);
    } catch (const Error& error) {
      save_dir_error = error.what();
    }
  return detail::check_training(*this, save_dir_error);
}

}  // namespace ddpxx
