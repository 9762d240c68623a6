// ddpxx/precision/low_precision.hpp — parameters in 16 bits; the optimizer steps a copy in the model's own type.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/precision/concept.hpp>
#include <ddpxx/precision/gpu_generation.hpp>
#include <ddpxx/precision/loss_scaler.hpp>
#include <ddpxx/precision/low_precision_config.hpp>

namespace ddpxx {

/// Keeps no parameter in the model's own type: every parameter has 16 bits.
struct KeepNone {
  bool operator()(const std::string&) const noexcept { return false; }
};

/// Keeps the parameters of norms in the model's own type. A parameter belongs to a norm if a part of its name contains
/// "norm", is "ln", or begins with "ln" and a digit or underscore, as in `ln_f`, `ln1` or `h.0.ln_1.weight`.
struct KeepNorms {
  bool operator()(const std::string& name) const {
    const std::string_view all = name;
    for (std::size_t begin = 0; begin <= all.size();) {
      const auto end = std::min(all.find('.', begin), all.size());
      if (is_norm(all.substr(begin, end - begin))) return true;
      begin = end + 1;
    }
    return false;
  }

 private:
  static bool is_norm(std::string_view part) {
    if (part.find("norm") != std::string_view::npos) return true;
    constexpr std::string_view kAfter = "_0123456789";
    return part.starts_with("ln") && (part.size() == 2 || kAfter.find(part[2]) != std::string_view::npos);
  }
};

template <class Batch>
concept HasInputs = requires(Batch batch) {
  { batch.inputs } -> std::same_as<at::Tensor&>;
};

/// The model computes with parameters of type `kType`. The optimizer steps copies in the model's own type, which are
/// rounded after each step; its state has that type too. Parameters for which `Kept` is true are not rounded. A module
/// that uses both types must then cast: few of LibTorch's operations take both, such as layer norm on a CPU.
/// The model of a trainer that has ended keeps the 16-bit values, and the copies are lost. Snapshots hold the copies:
/// to train on with exact values, load one into a model in float32. A trainer with this precision refuses a model whose
/// trained parameters have 16 bits; `model->to(at::kFloat)` makes it one of rounded values that can be trained.
/// Source  FSDP2's MixedPrecisionPolicy(param_dtype, reduce_dtype).
template <at::ScalarType kType = at::kBFloat16, class Kept = KeepNone>
class LowPrecision {
  static_assert(kType == at::kBFloat16 || kType == at::kHalf,
                "LowPrecision: parameters are held in at::kBFloat16 or at::kHalf; for float32 choose Float32");
  static_assert(std::default_initializable<Kept> && std::predicate<const Kept&, const std::string&>,
                "LowPrecision: Kept is called with a parameter's name and says whether it keeps the model's own type: "
                "add `bool operator()(const std::string& name) const`");

 public:
  static constexpr bool kScalesLoss = kType == at::kHalf;

  using Config = std::conditional_t<kScalesLoss, ScaledLowPrecisionConfig, LowPrecisionConfig>;

  explicit LowPrecision(const Config& config) : config_{config} {}

  auto forward_scope(at::DeviceType) const { return std::monostate{}; }
  /// The batch with floating-point `inputs` cast to the parameters' type, which the model's first product needs.
  /// Targets are not cast. A batch without a member `inputs` is cast by the model.
  /// Source  FSDP2's cast_forward_inputs, at the root.
  template <class Batch>
  Batch cast_inputs(Batch batch) const {
    if constexpr (HasInputs<Batch>)
      if (batch.inputs.defined() && batch.inputs.is_floating_point()) batch.inputs = batch.inputs.to(kType);
    return batch;
  }
  NumberFormats formats() const {
    return {.parameters = kType,
            .reduction = config_.reduction == GradientSums::float32 ? at::kFloat : kType,
            .kept = Kept{}};
  }
  LossScaler make_scaler(at::Device device) const
    requires kScalesLoss
  {
    return {config_.scaler, device};
  }
  /// Errors  `config` for a GPU without units for bfloat16.
  static void check(at::Device device) {
    if constexpr (kType == at::kBFloat16) require_ampere("bfloat16", "float16, or float32", device);
  }

 private:
  Config config_;
};

static_assert(PrecisionPolicy<LowPrecision<>> && explain_precision<LowPrecision<>>());
static_assert(PrecisionPolicy<LowPrecision<at::kHalf, KeepNorms>> && scales_loss<LowPrecision<at::kHalf>>);

}  // namespace ddpxx
