// gloo/transport/device.h — named by ProcessGroupGloo, never looked into: see ../context.h.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
