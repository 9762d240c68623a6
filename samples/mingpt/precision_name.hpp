// precision_name.hpp — the names by which a configuration chooses a precision.
#pragma once

#include <array>
#include <string>

#include <ddpxx/core/describe.hpp>

enum class PrecisionName { fp32, tf32, bf16, fp16, bf16_params };

/// The names of ddpxx, then those of nanoGPT.
constexpr auto enum_names(PrecisionName) {
  using enum PrecisionName;
  using ddpxx::Named;
  return std::array{Named{fp32, "fp32"},
                    Named{tf32, "tf32"},
                    Named{bf16, "bf16"},
                    Named{fp16, "fp16"},
                    Named{bf16_params, "bf16_params"},
                    Named{fp32, "float32"},
                    Named{bf16, "bfloat16"},
                    Named{fp16, "float16"}};
}

inline std::string text_of(PrecisionName precision) {
  for (const auto& [value, name] : enum_names(precision))
    if (value == precision) return std::string{name};
  return {};
}
