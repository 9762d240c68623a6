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
  std::shared_ptr<const Dataset> validation = {};  ///< May be null where no setting asks for evaluations.
  /// Where snapshots are read and written; messages call it by training.save_dir. Null: the trainer opens
  /// training.save_dir.
  std::shared_ptr<Storage> storage = {};
  /// Makes the loader of each epoch of training; empty makes a `Loader`.
  MakeLoader<Dataset> make_loader = {};
  std::ostream* screen = nullptr;   ///< Gets the lines about the run on rank 0; null: std::cout.
  std::string strategy_name = {};   ///< Name of the strategy in the first lines of a run; empty: the name of its type.
  std::string precision_name = {};  ///< Name of the precision in the first lines of a run; empty: the name of its type.
};

}  // namespace ddpxx
