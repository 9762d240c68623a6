// ddpxx/train/check_group_device_inl.hpp — definitions of check_group_device.hpp; ddpxx/core/inline.hpp says how they
// are compiled.
#pragma once

#include <c10/core/Device.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/train/check_group_device.hpp>

namespace ddpxx {

DDPXX_INLINE void check_group_device(at::Device model, at::Device group) {
  // A group whose device has no index sends from this thread's current device.
  if (model.type() == group.type() && (!group.has_index() || !model.has_index() || model.index() == group.index()))
    return;
  throw Error{Errc::config, "the model is on " + model.str() + ", and its group on " + group.str() +
                                ": make the group with join(environment, training.device), and the model on "
                                "group.device()"};
}

}  // namespace ddpxx
