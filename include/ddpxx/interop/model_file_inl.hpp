// ddpxx/interop/model_file_inl.hpp — the definitions of model_file.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/named_tensors.hpp>
#include <ddpxx/snapshot/safetensors.hpp>

namespace ddpxx {

DDPXX_INLINE bool is_of_snapshot(const NamedTensors& tensors) {
  constexpr std::array<std::string_view, 4> kFronts{"model.", "optimizer.", "scaler.", "random."};
  return std::ranges::all_of(tensors, [&](const auto& item) {
    return std::ranges::any_of(kFronts, [&](auto front) { return item.first.starts_with(front); });
  });
}

DDPXX_INLINE NamedTensors read_model_file(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") {
    constexpr std::string_view kModel = "model.";
    auto tensors = read_safetensors(path).tensors;
    if (!is_of_snapshot(tensors)) return tensors;
    NamedTensors model;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(kModel)) model.emplace(name.substr(kModel.size()), tensor);
    return model;
  }
  const auto value = read_pt(path);
  try {
    return from_python(value).model;
  } catch (const Error& error) {
    throw Error{error.code(), path.string() + ": " + error.what()};
  }
}

}  // namespace ddpxx
