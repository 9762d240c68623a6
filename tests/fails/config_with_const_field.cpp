#include <ddpxx/config/parse_config.hpp>

struct ConstConfig {
  const int seed = 1;
  int steps = 1;
};
inline const auto kConstConfig = ddpxx::parse_config<ConstConfig>(0, nullptr);
