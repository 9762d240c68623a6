#include <ddpxx/config/parse_config.hpp>

class Widget {
 public:
  int value() const { return value_; }

 private:
  int value_ = 1;
};
struct WidgetConfig {
  int seed = 1;
  Widget gadget;
};
inline const auto kWidgetConfig = ddpxx::parse_config<WidgetConfig>(0, nullptr);
