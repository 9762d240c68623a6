#include <string>

#include <ddpxx/parallel/single_device.hpp>

struct ResumesOddly : ddpxx::SingleDevice {
  using SingleDevice::SingleDevice;
  void resume_at(const std::string&) {}
};
static_assert(ddpxx::explain_strategy<ResumesOddly>());
