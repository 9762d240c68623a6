#include <ddpxx/config/parse_config.hpp>

enum class Flavour { sweet, sour };
struct FlavourConfig {
  Flavour flavour = Flavour::sweet;
};
inline const auto kFlavourConfig = ddpxx::parse_config<FlavourConfig>(0, nullptr);
