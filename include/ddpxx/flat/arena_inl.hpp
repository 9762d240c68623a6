// ddpxx/flat/arena_inl.hpp — the definitions of arena.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/hollow_storage.hpp>
#include <ddpxx/layers/changes_in_place.hpp>

namespace ddpxx {

namespace detail {

inline std::string type_and_device(const at::Tensor& tensor) {
  return std::string{c10::toString(tensor.scalar_type())} + " on " + tensor.device().str();
}

/// What to do about two parameters of different types or devices.
inline std::string advice_on(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_complex() != b.is_complex())
    return ": register the real and imaginary parts of a complex parameter as a real one, and call "
           "at::view_as_complex() in forward";
  return ": convert the model by to() before the trainer takes it";
}

}  // namespace detail

DDPXX_INLINE std::vector<SliceEntry> Slice::entries() const {
  std::vector<SliceEntry> entries;
  for (const auto& parameter : parameters) {
    const auto first = std::max(begin, parameter.offset), last = std::min(end, parameter.offset + parameter.numel);
    if (first < last) entries.push_back({&parameter, first - begin, last - first, first - parameter.offset});
  }
  return entries;
}

DDPXX_INLINE Arena::Arena(const std::vector<NamedParameter>& parameters, const ArenaOptions& options) {
  if (parameters.empty()) return;
  const auto& first = parameters.front();
  options_ = first.tensor.options().requires_grad(false);
  pieces_ = options.pieces;
  piece_ = options.piece;
  lay_out(parameters, options);
  const c10::NoGradGuard no_grad;
  const auto master_options =
      options.offload ? options_.device(at::kCPU).pinned_memory(first.tensor.is_cuda()) : options_;
  if (options.gradients == Gradients::whole) gradients_ = at::zeros({size_}, options_);
  if (options.gradients == Gradients::piece) gradients_ = at::zeros({size_ / options.pieces}, master_options);
  for (auto& segment : segments_) fill(segment, options, master_options);
  cut_slices(options);
}

DDPXX_INLINE std::int64_t Arena::bytes() const {
  std::int64_t bytes = gradients_.defined() ? static_cast<std::int64_t>(gradients_.nbytes()) : 0;
  for (const auto& segment : segments_) {
    bytes += static_cast<std::int64_t>(segment.values.storage().nbytes());
    if (segment.has_copy()) bytes += static_cast<std::int64_t>(segment.master.nbytes());
  }
  return bytes;
}

DDPXX_INLINE void Arena::publish_masters() const {
  const c10::NoGradGuard no_grad;
  for (const auto& segment : segments_)
    if (segment.has_copy() && segment.values.storage().nbytes() > 0)  // values without memory are gathered later
      piece_of(segment.values).copy_(segment.master);
}

DDPXX_INLINE void Arena::hide(const Segment& segment) {
  for (auto i = segment.first; i < segment.last; ++i) {
    auto& entry = entries_[i];
    if (!entry.hollow)
      entry.hollow =
          hollow_storage(segment.values.nbytes(), segment.values.device(),
                         "parameter \"" + entry.name +
                             "\" has no values on this rank outside the calls that the strategy runs: call a layer "
                             "as run(*layer, x) and the model by the trainer, or read the parameter while you hold "
                             "what gathered() of the trainer's strategy returns");
    entry.parameter.unsafeGetTensorImpl()->set_storage_keep_dtype(entry.hollow);
  }
}

DDPXX_INLINE bool Arena::owns(std::size_t i) const {
  const auto& entry = entries_[i];
  const auto& segment = segments_[entry.segment];
  const auto* storage = entry.parameter.storage().unsafeGetStorageImpl();
  return (storage == segment.values.storage().unsafeGetStorageImpl() ||
          storage == entry.hollow.unsafeGetStorageImpl()) &&
         entry.parameter.storage_offset() == entry.offset - segment.begin &&
         entry.parameter.sizes() == at::IntArrayRef{entry.shape} && entry.parameter.is_contiguous();
}

DDPXX_INLINE void Arena::check_owned(Freezing freezing) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    if (!owns(i))
      throw Error{Errc::config, "parameter \"" + entry.name +
                                    "\" has left the flat memory, or changed its shape: load or convert a model "
                                    "before the trainer takes it"};
    // Tensor::requires_grad() is true for a parameter with an edge of FSDP too.
    const auto* const meta = torch::autograd::impl::get_autograd_meta(entry.parameter);
    const bool trains = meta != nullptr && meta->requires_grad_;
    if (trains != entry.trains && (trains || freezing == Freezing::refused))
      throw Error{Errc::config, "parameter \"" + entry.name + "\" was " + (entry.trains ? "frozen" : "unfrozen") +
                                    " after the trainer had taken the model: do that before, and make a new trainer"};
  }
}

DDPXX_INLINE bool Arena::keeps_values(const ArenaEntry& entry) const {
  const auto& segment = segments_[entry.segment];
  const bool has_values = pieces_ == 1 && segment.values.storage().nbytes() > 0;
  if (!has_values || !entry.trains) return has_values;
  const c10::NoGradGuard no_grad;
  return at::equal(part(segment.values, entry, segment.begin),
                   part(segment.master, entry, segment.begin).to(segment.format));
}

DDPXX_INLINE void Arena::forget_changes() {
  for (auto& entry : entries_) entry.changes = detail::changes_in_place(entry.parameter);
}

DDPXX_INLINE void Arena::check_unchanged() const {
  for (const auto& entry : entries_)
    if (segments_[entry.segment].has_copy() && detail::changes_in_place(entry.parameter) != entry.changes &&
        !keeps_values(entry))
      throw Error{Errc::config,
                  "parameter \"" + entry.name +
                      "\" was changed in place, and the change would be lost, since the trainer keeps its values in "
                      "other memory, as under FSDP or in 16 bits: change the model before the trainer takes it, or "
                      "change the values of the strategy's slices() between two steps and call its finish_step()"};
}

DDPXX_INLINE void Arena::lay_out(const std::vector<NamedParameter>& parameters, const ArenaOptions& options) {
  const auto& first = parameters.front();
  const auto element = static_cast<std::int64_t>(first.tensor.element_size());
  const std::int64_t step = kAlignBytes / element;
  const auto round_up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  const auto close = [&] {
    auto& segment = segments_.back();
    segment.last = entries_.size();
    segment.end = segment.begin + round_up(size_ - segment.begin, step * options.pieces);
    size_ = segment.end;
  };
  for (const auto& [name, tensor, unit, group, wish] : parameters) {
    if (tensor.scalar_type() != first.tensor.scalar_type() || tensor.device() != first.tensor.device())
      throw Error{Errc::config, "parameters of one model must share dtype and device, but \"" + name + "\" is " +
                                    detail::type_and_device(tensor) + " and \"" + first.name + "\" is " +
                                    detail::type_and_device(first.tensor) + detail::advice_on(tensor, first.tensor)};
    const auto format = wish.value_or(tensor.scalar_type());
    const auto full = [&, &tensor = tensor] {
      const auto limit = segments_.size() == 1 ? options.first_segment_bytes : options.segment_bytes;
      return options.cut == CutAt::bytes && (size_ - segments_.back().begin + tensor.numel()) * element > limit;
    };
    if (segments_.empty() || segments_.back().format != format ||
        (options.cut == CutAt::units && segments_.back().unit != unit) || full()) {
      if (!segments_.empty()) close();
      Segment segment;
      segment.begin = size_;
      segment.first = entries_.size();
      segment.unit = unit;
      segment.format = format;
      segments_.push_back(std::move(segment));
    }
    entries_.push_back({.name = name,
                        .parameter = tensor,
                        .gradient = {},
                        .offset = size_,
                        .numel = tensor.numel(),
                        .unit = unit,
                        .group = group,
                        .segment = segments_.size() - 1,
                        .index = entries_.size(),
                        .trains = tensor.requires_grad(),
                        .shape = tensor.sizes().vec()});
    size_ += round_up(tensor.numel(), step);
  }
  close();
}

DDPXX_INLINE void Arena::fill(Segment& segment, const ArenaOptions& options, const at::TensorOptions& master_options) {
  auto whole = at::zeros({segment.size()}, options_);
  for (auto i = segment.first; i < segment.last; ++i)
    part(whole, entries_[i], segment.begin).copy_(entries_[i].parameter);
  if (options.prepare) options.prepare(whole);
  segment.values = whole.to(segment.format);
  const auto piece = piece_of(whole);
  const auto size = piece.numel();
  const bool shared = options.masters == Masters::shared && segment.format == options_.dtype();
  segment.master = shared ? piece : at::empty({size}, master_options).copy_(piece);
  if (options.gradients == Gradients::whole)
    segment.gradient = gradients_.narrow(0, segment.begin + size * options.piece, size);
  if (options.gradients == Gradients::piece)
    segment.gradient = gradients_.narrow(0, segment.begin / options.pieces, size);
  for (auto i = segment.first; i < segment.last; ++i) {
    auto& entry = entries_[i];
    entry.parameter.set_data(part(segment.values, entry, segment.begin));
    entry.changes = detail::changes_in_place(entry.parameter);
    if (options.gradients != Gradients::whole) continue;
    entry.gradient = part(gradients_, entry);
    const auto end = entry.offset + entry.numel;
    const auto next = i + 1 < segment.last ? entries_[i + 1].offset : segment.end;
    if (end < next) entry.gap = gradients_.narrow(0, end, next - end);
  }
}

DDPXX_INLINE void Arena::cut_slices(const ArenaOptions& options) {
  for (const auto& segment : segments_) {
    const auto size = segment.size() / options.pieces;
    const auto piece_begin = segment.begin + size * options.piece, piece_end = piece_begin + size;
    for (std::size_t first = segment.first; first < segment.last;) {
      auto last = first + 1;
      while (last < segment.last && entries_[last].group == entries_[first].group) ++last;
      const auto begin = std::max(piece_begin, entries_[first].offset);
      const auto end = std::min(piece_end, last < segment.last ? entries_[last].offset : segment.end);
      if (begin < end)
        slices_.push_back(
            {segment.master.narrow(0, begin - piece_begin, end - begin),
             segment.gradient.defined() ? segment.gradient.narrow(0, begin - piece_begin, end - begin) : at::Tensor{},
             begin, end, entries_[first].group, std::span{entries_}.subspan(first, last - first)});
      first = last;
    }
  }
}

}  // namespace ddpxx
