// ddpxx/flat/arena.hpp — parameters and gradients in contiguous memory; named ranges of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A parameter on its way into an arena. `unit` and `group` only mark where slices begin: see `Arena::slices`.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  int unit = 0;
  int group = 0;
};

/// A parameter that lives in an arena.
struct ArenaEntry {
  std::string name;
  at::Tensor parameter;     ///< The leaf itself; its data is a view of the arena.
  at::Tensor gradient;      ///< View of the gradient memory, shaped like the parameter; undefined in a frozen arena.
  std::int64_t offset = 0;  ///< In elements from the arena's begin.
  std::int64_t numel = 0;
  int unit = 0;
  int group = 0;
};

/// A range of an arena: what one optimizer call steps.
struct Slice {
  at::Tensor values;     ///< 1-D.
  at::Tensor gradients;  ///< 1-D, the same elements.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int group = 0;
};

enum class Gradients { kept, none };

/// Contiguous memory that parameters, and gradients in the same layout, live in.
/// The parameters stay leaves; their data become views, 64-byte aligned, in the order given. Gaps hold zeros for good.
/// Errors  `config` for parameters of different dtypes or devices, and for a parameter given twice.
class Arena {
 public:
  Arena() = default;
  explicit Arena(const std::vector<NamedParameter>& parameters, Gradients gradients = Gradients::kept) {
    if (parameters.empty()) return;
    const auto& first = parameters.front();
    const std::int64_t step = 64 / static_cast<std::int64_t>(first.tensor.element_size());
    std::int64_t end = 0;
    for (const auto& [name, tensor, unit, group] : parameters) {
      if (tensor.scalar_type() != first.tensor.scalar_type() || tensor.device() != first.tensor.device())
        throw Error{Errc::config, "parameters of one model must share dtype and device, but \"" + name + "\" is " +
                                      describe(tensor) + " and \"" + first.name + "\" is " + describe(first.tensor)};
      entries_.push_back({name, tensor, {}, end, tensor.numel(), unit, group});
      end += (tensor.numel() + step - 1) / step * step;
    }
    const c10::NoGradGuard no_grad;
    values_ = at::zeros({end}, first.tensor.options().requires_grad(false));
    if (gradients == Gradients::kept) gradients_ = at::zeros_like(values_);
    for (auto& entry : entries_) {
      const auto view = part(values_, entry);
      view.copy_(entry.parameter);
      entry.parameter.set_data(view);
      if (gradients_.defined()) entry.gradient = part(gradients_, entry);
    }
  }

  std::size_t size() const noexcept { return entries_.size(); }
  const std::vector<ArenaEntry>& entries() const noexcept { return entries_; }
  const ArenaEntry& operator[](std::size_t i) const { return entries_[i]; }
  /// All of it, 1-D; undefined when the arena is empty.
  const at::Tensor& values() const noexcept { return values_; }
  const at::Tensor& gradients() const noexcept { return gradients_; }
  std::int64_t bytes() const {
    return entries_.empty()
               ? 0
               : static_cast<std::int64_t>(values_.nbytes() + (gradients_.defined() ? gradients_.nbytes() : 0));
  }

  /// The parts of a tensor laid out like the range [begin, ...) of this arena that belong to `entry`.
  static at::Tensor part(const at::Tensor& range, const ArenaEntry& entry, std::int64_t begin = 0) {
    return range.narrow(0, entry.offset - begin, entry.numel).view(entry.parameter.sizes());
  }

  /// False once a parameter's data lies elsewhere: loading or converting a module does that silently.
  bool owns(std::size_t i) const {
    const auto& entry = entries_[i];
    return entry.parameter.const_data_ptr() == static_cast<const char*>(values_.const_data_ptr()) +
                                                   entry.offset * static_cast<std::int64_t>(values_.element_size());
  }
  /// Errors  `config` naming the first parameter that has left.
  void check_owned() const {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (!owns(i))
        throw Error{Errc::config,
                    "parameter \"" + entries_[i].name +
                        "\" has left the flat memory: load or convert a model before the trainer takes it"};
  }

  /// The arena cut where unit or group changes.
  std::vector<Slice> slices() const {
    std::vector<Slice> slices;
    for (std::size_t first = 0; first < entries_.size();) {
      std::size_t last = first + 1;
      while (last < entries_.size() && entries_[last].unit == entries_[first].unit &&
             entries_[last].group == entries_[first].group)
        ++last;
      const auto begin = entries_[first].offset;
      const auto end = last < entries_.size() ? entries_[last].offset : values_.numel();
      slices.push_back({values_.narrow(0, begin, end - begin), gradients_.narrow(0, begin, end - begin), begin, end,
                        entries_[first].group});
      first = last;
    }
    return slices;
  }

 private:
  static std::string describe(const at::Tensor& tensor) {
    return std::string{c10::toString(tensor.scalar_type())} + " on " + tensor.device().str();
  }

  std::vector<ArenaEntry> entries_;
  at::Tensor values_;
  at::Tensor gradients_;
};

}  // namespace ddpxx
