// ddpxx/snapshot/named_tensors.hpp — tensors by name, as files and checkpoints hold them.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace ddpxx {

using NamedTensors = std::map<std::string, at::Tensor>;

}  // namespace ddpxx
