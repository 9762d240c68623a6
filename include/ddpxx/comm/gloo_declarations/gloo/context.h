// gloo/context.h — the part of Gloo's interface that torch's ProcessGroupGloo.hpp names.
//
// LibTorch contains Gloo and exports it, but its packages leave out Gloo's headers. This folder declares the little
// that the header of the process group needs in order to be parsed; the build adds it to the include path only where
// the real headers are absent. It is safe because the process group holds Gloo's objects by shared_ptr alone, so that
// no layout and no table of virtual functions ever comes from here: never create one of these types.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
