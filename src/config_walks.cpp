// src/config_walks.cpp — the part of ddpxx::core that train/config_walks.hpp declares.
#include <ddpxx/train/config_walks.hpp>

namespace ddpxx::detail {

template void walk(ConfigTable&, const CharDatasetConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const GPTConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const AdamW::Config&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const SGDConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const DDP::Config&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const SnapshotConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const EarlyStoppingConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const PlateauConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const ParameterGroupsConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const TrainingConfig&, const FieldFacts&, OpenGroup);
template void walk(ConfigTable&, const TrainerConfig<>&, const FieldFacts&, OpenGroup);

}  // namespace ddpxx::detail

namespace ddpxx {

template void check_trainer_config(const TrainerConfig<>&);

}  // namespace ddpxx
