// ddpxx/train/trainer_parts.hpp — what a program may hand a trainer beside the model, the dataset and the settings.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <ddpxx/data/make_loader.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

template <class Dataset>
struct TrainerParts {
  std::shared_ptr<const Dataset> validation = {};  ///< May be null where training.eval_every is 0.
  /// Takes the snapshots; training.save_dir is its name in messages. Null opens training.save_dir.
  std::shared_ptr<Storage> storage = {};
  /// Makes the loader of each epoch of training; empty makes a `Loader`.
  MakeLoader<Dataset> make_loader = {};
  std::ostream* screen = nullptr;   ///< Gets the lines about the run on rank 0; null is std::cout.
  std::string strategy_name = {};   ///< As the first lines of a run call it; empty is the name of the type.
  std::string precision_name = {};  ///< Likewise.
};

}  // namespace ddpxx
