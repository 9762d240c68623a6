// tensor_text.hpp — a stored tensor's type and shape, as `F32 [3, 4]`.
#pragma once

#include <string>

#include <ddpxx/snapshot/dtype_name.hpp>
#include <ddpxx/snapshot/manifest.hpp>

inline std::string tensor_text(const ddpxx::StoredTensor& tensor) {
  std::string text;
  for (const auto length : tensor.shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return std::string{ddpxx::detail::dtype_name(tensor.dtype)} + " [" + text + ']';
}
