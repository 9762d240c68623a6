// ddpxx/flat/named_tensors.hpp — tensors by name, as files and checkpoints hold them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/StringUtil.h>

namespace ddpxx {

using NamedTensors = std::map<std::string, at::Tensor>;

/// The shapes of tensors, by their names.
using TensorShapes = std::map<std::string, std::vector<std::int64_t>>;

inline TensorShapes shapes_of(const NamedTensors& tensors) {
  TensorShapes shapes;
  for (const auto& [name, tensor] : tensors) shapes.emplace(name, tensor.sizes().vec());
  return shapes;
}

/// A line for each tensor that the model or `place`, such as "the file", lacks, or that has another shape there. Empty
/// where all fit.
inline std::string shape_differences(const TensorShapes& found, const TensorShapes& model, const std::string& place) {
  std::string lines;
  for (const auto& [name, shape] : model) {
    const auto other = found.find(name);
    if (other == found.end())
      lines += "\n  " + name + ": missing in " + place;
    else if (other->second != shape)
      lines += "\n  " + name + ": " + c10::str(at::IntArrayRef{other->second}) + " in " + place + ", " +
               c10::str(at::IntArrayRef{shape}) + " in the model";
  }
  for (const auto& [name, shape] : found)
    if (!model.contains(name)) lines += "\n  " + name + ": only in " + place;
  return lines;
}

}  // namespace ddpxx
