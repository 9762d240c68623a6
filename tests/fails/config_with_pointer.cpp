#include <memory>

#include <ddpxx/config/parse_config.hpp>

struct PointerConfig {
  int seed = 1;
  std::unique_ptr<int> steps = {};
};
inline const auto kPointerConfig = ddpxx::parse_config<PointerConfig>(0, nullptr);
