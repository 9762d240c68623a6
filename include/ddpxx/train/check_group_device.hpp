// ddpxx/train/check_group_device.hpp — refuses a model that is not on the device of its group.
#pragma once

#include <c10/core/Device.h>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// Checks that a model is on the device whose tensors its group sends. A step sends numbers that it computes on the
/// group's device; with the model on another one it would wait for copies, or fail inside of LibTorch.
/// Errors  `config`, naming both devices.
void check_group_device(at::Device model, at::Device group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/check_group_device_inl.hpp>
#endif
