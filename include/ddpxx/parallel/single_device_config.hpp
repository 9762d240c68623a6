// ddpxx/parallel/single_device_config.hpp — the settings of SingleDevice: it has none.
#pragma once

namespace ddpxx {

struct SingleDeviceConfig {};

}  // namespace ddpxx
