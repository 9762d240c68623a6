#include <chrono>

#include <ddpxx/config/parse_config.hpp>

struct WaitConfig {
  std::chrono::duration<double> wait{1.5};
};
inline const auto kWaitConfig = ddpxx::parse_config<WaitConfig>(0, nullptr);
