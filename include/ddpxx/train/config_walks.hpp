// ddpxx/train/config_walks.hpp — the walks over ddpxx's own config structs, and the check of a trainer's default ones.
// They are equal in all programs: one that links ddpxx::core does not compile them, src/config_walks.cpp does.
#pragma once

#ifdef DDPXX_CORE

#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/optim/plateau_config.hpp>
#include <ddpxx/optim/sgd_config.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/check_trainer.hpp>
#include <ddpxx/train/default_types.hpp>
#include <ddpxx/train/early_stopping_config.hpp>
#include <ddpxx/train/trainer_config.hpp>
#include <ddpxx/train/training_config.hpp>

namespace ddpxx::detail {

extern template void walk(ConfigTable&, const CharDatasetConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const GPTConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const AdamW::Config&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const SGDConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const DDP::Config&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const SnapshotConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const EarlyStoppingConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const PlateauConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const ParameterGroupsConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const TrainingConfig&, const FieldFacts&, OpenGroup);
extern template void walk(ConfigTable&, const TrainerConfig<>&, const FieldFacts&, OpenGroup);

}  // namespace ddpxx::detail

namespace ddpxx {

extern template void check_trainer_config(const TrainerConfig<>&);

}  // namespace ddpxx

#endif
