#include <ddpxx/config/parse_config.hpp>

struct BuiltConfig {
  explicit BuiltConfig(int value) : seed{value} {}
  int seed;
};
inline const auto kBuiltConfig = ddpxx::parse_config<BuiltConfig>(0, nullptr);
