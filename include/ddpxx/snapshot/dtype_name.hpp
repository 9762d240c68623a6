// ddpxx/snapshot/dtype_name.hpp — the names that safetensors files and manifests give to the types of tensors.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx::detail {

struct SafetensorsType {
  std::string_view name;
  at::ScalarType dtype;
};
inline constexpr std::array kSafetensorsTypes{SafetensorsType{"F32", at::kFloat},
                                              SafetensorsType{"F64", at::kDouble},
                                              SafetensorsType{"F16", at::kHalf},
                                              SafetensorsType{"BF16", at::kBFloat16},
                                              SafetensorsType{"I64", at::kLong},
                                              SafetensorsType{"I32", at::kInt},
                                              SafetensorsType{"I16", at::kShort},
                                              SafetensorsType{"I8", at::kChar},
                                              SafetensorsType{"U8", at::kByte},
                                              SafetensorsType{"U16", at::kUInt16},
                                              SafetensorsType{"U32", at::kUInt32},
                                              SafetensorsType{"U64", at::kUInt64},
                                              SafetensorsType{"BOOL", at::kBool},
                                              SafetensorsType{"F8_E4M3", at::kFloat8_e4m3fn},
                                              SafetensorsType{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
                                              SafetensorsType{"F8_E5M2", at::kFloat8_e5m2},
                                              SafetensorsType{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
                                              SafetensorsType{"C64", at::kComplexFloat}};

/// Returns the name of a type.
/// Errors  `storage` for a type that snapshots cannot hold.
inline std::string_view dtype_name(at::ScalarType dtype) {
  for (const auto& known : kSafetensorsTypes)
    if (known.dtype == dtype) return known.name;
  throw Error{Errc::storage, std::string{"a snapshot cannot hold tensors of type "} + at::toString(dtype)};
}

/// Returns the type that a manifest names.
/// Errors  `storage` for an unknown name.
inline at::ScalarType dtype_named(const std::string& name) {
  for (const auto& known : kSafetensorsTypes)
    if (known.name == name) return known.dtype;
  throw Error{Errc::storage, "it has a tensor of the unknown type " + in_quotes(name)};
}

}  // namespace ddpxx::detail
