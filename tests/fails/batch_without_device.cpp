#include <vector>

#include <ddpxx/train/train_step.hpp>

#include "base.hpp"

struct Placeless {
  std::int64_t num_tokens = 1;
};
struct PlacelessModel : torch::nn::Module {
  ddpxx::Loss forward(const Placeless&) { return {}; }
};
inline void step_of_placeless(ddpxx::TrainStep<PlacelessModel>& train) { train.step(std::vector<Placeless>(1)); }
