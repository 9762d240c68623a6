#include <vector>

#include <ddpxx/config/parse_config.hpp>

enum class Spice { salt, pepper };
struct SpiceConfig {
  std::vector<Spice> spices = {};
};
inline const auto kSpiceConfig = ddpxx::parse_config<SpiceConfig>(0, nullptr);
