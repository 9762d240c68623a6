#include <ddpxx/config/parse_config.hpp>

struct BaseConfig {
  int seed = 1;
};
struct DerivedConfig : BaseConfig {
  int steps = 1;
};
inline const auto kDerivedConfig = ddpxx::parse_config<DerivedConfig>(0, nullptr);
