// ddpxx/flat/arena.hpp — parameters and gradients in contiguous memory; named ranges of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/hollow_storage.hpp>

namespace ddpxx {

/// A parameter to be put into an arena. A segment may begin where `unit` changes, a slice where `group` changes.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  int unit = 0;
  int group = 0;
  std::optional<at::ScalarType> format = {};  ///< Type in which the model computes; none: the parameter's own type.
};

/// A parameter that lives in an arena.
struct ArenaEntry {
  std::string name;
  at::Tensor parameter;  ///< The leaf itself; its data is a view of its segment's values.
  at::Tensor
      gradient;  ///< View of the gradient memory, shaped like the parameter; undefined unless gradients are whole.
  at::Tensor gap = {};  ///< View of the gradient memory from this parameter's end to the next one; undefined if empty.
  std::int64_t offset = 0;  ///< In elements from the start of the arena.
  std::int64_t numel = 0;
  int unit = 0;
  int group = 0;
  std::size_t segment = 0;
  std::size_t index = 0;  ///< In the arena.
  std::vector<std::int64_t> shape = {};
  c10::Storage hollow = {};  ///< The parameter's storage while its values are hidden.
};

/// A range of an arena with a memory of its own: parameters of one format, cut into one equal piece for each rank.
struct Segment {
  std::int64_t begin = 0;  ///< In elements from the start of the arena.
  std::int64_t end = 0;
  std::size_t first = 0;  ///< The segment holds entries [first, last).
  std::size_t last = 0;
  int unit = 0;  ///< The unit of the first entry; with CutAt::units, of every entry.
  at::ScalarType format = at::kFloat;
  at::Tensor values;    ///< 1-D, the whole segment, in the type in which the model computes.
  at::Tensor master;    ///< 1-D, this rank's piece, in the type in which the optimizer steps it.
  at::Tensor gradient;  ///< 1-D, this rank's piece of the gradients; undefined with Gradients::none.

  std::int64_t size() const noexcept { return end - begin; }
  /// True if the optimizer steps a copy, and not the memory with which the model computes.
  bool has_copy() const { return master.defined() && !master.is_alias_of(values); }
};

/// The elements of one parameter that lie in a slice.
struct SliceEntry {
  const ArenaEntry* parameter = nullptr;  ///< Its name, shape and group.
  std::int64_t begin = 0;                 ///< In elements from the start of the slice.
  std::int64_t size = 0;
  std::int64_t offset = 0;  ///< Of the first of these elements from the start of the parameter.
};

/// A range of an arena that an optimizer steps: elements of one group in this rank's piece of one segment.
struct Slice {
  at::Tensor values;     ///< 1-D.
  at::Tensor gradients;  ///< 1-D, the gradients of `values`; undefined in a frozen arena.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int group = 0;
  std::span<const ArenaEntry> parameters = {};  ///< Among them those of entries(); of the arena.

  /// Which elements of which parameters the slice holds, in their order. Gaps between parameters belong to none.
  std::vector<SliceEntry> entries() const {
    std::vector<SliceEntry> entries;
    for (const auto& parameter : parameters) {
      const auto first = std::max(begin, parameter.offset), last = std::min(end, parameter.offset + parameter.numel);
      if (first < last) entries.push_back({&parameter, first - begin, last - first, first - parameter.offset});
    }
    return entries;
  }
};

/// Gradient memory of an arena: for all elements, for this rank's pieces, or none.
enum class Gradients { whole, piece, none };
/// Memory of the pieces that the optimizer steps. shared: views of the segments' values where both have one type, else
/// copies; apart: always copies.
enum class Masters { shared, apart };
/// Where a new segment begins: at each change of the format; at each change of format or unit; at each change of format
/// and after a number of bytes.
enum class CutAt { formats, units, bytes };

struct ArenaOptions {
  Gradients gradients = Gradients::whole;
  Masters masters = Masters::shared;
  int pieces = 1;  ///< Number of equal pieces into which every segment is cut.
  int piece = 0;   ///< Index of this rank's piece.
  CutAt cut = CutAt::formats;
  std::int64_t first_segment_bytes = 0;  ///< Maximum size of the first segment, with CutAt::bytes.
  std::int64_t segment_bytes = 0;        ///< Maximum size of the other segments, with CutAt::bytes.
  bool offload = false;  ///< Copied pieces and gradient pieces lie in CPU memory, pinned if the model is on a GPU.
  /// Called with the values of each segment, whole and not yet rounded, before the segment is cut.
  std::function<void(at::Tensor)> prepare = {};
};

/// Contiguous memory that holds parameters, and gradients in the layout of the parameters.
/// The parameters stay leaves; their data become views, in the order given, each of which starts at a multiple of 64
/// bytes of the optimizer's memory. Slices and buckets include the gaps between parameters. Gaps between gradients are
/// zero from the first gradient of a step until clipping, so that norms, checks for infinite numbers and gradient hooks
/// may read them. Other gaps may hold any number: nothing reads them.
/// Errors  `config` for parameters of different dtypes or devices.
class Arena {
 public:
  static constexpr std::int64_t kAlignBytes = 64;

  Arena() = default;
  Arena(const Arena&) = delete;  // the slices refer to the entries
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = default;
  ~Arena() = default;
  explicit Arena(const std::vector<NamedParameter>& parameters, const ArenaOptions& options = {}) {
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

  std::size_t size() const noexcept { return entries_.size(); }
  std::int64_t numel() const noexcept { return size_; }
  const std::vector<ArenaEntry>& entries() const noexcept { return entries_; }
  const ArenaEntry& operator[](std::size_t i) const { return entries_[i]; }
  const std::vector<Segment>& segments() const noexcept { return segments_; }
  std::vector<Segment>& segments() noexcept { return segments_; }
  /// This rank's pieces, cut where the group changes.
  const std::vector<Slice>& slices() const noexcept { return slices_; }
  /// 1-D: all gradients of the arena, or with Gradients::piece this rank's pieces of them one after the other;
  /// undefined with Gradients::none.
  const at::Tensor& gradients() const noexcept { return gradients_; }
  /// The gradients of a segment, with Gradients::whole only.
  at::Tensor gradients(const Segment& segment) const { return gradients_.narrow(0, segment.begin, segment.size()); }
  /// Type and device of the parameters before any was converted; an offloaded optimizer's memory lies on the CPU.
  const at::TensorOptions& options() const noexcept { return options_; }

  /// Number of pieces into which every segment is cut.
  int pieces() const noexcept { return pieces_; }
  /// Index of this rank's piece.
  int piece() const noexcept { return piece_; }
  /// This rank's piece of a tensor laid out like a whole segment.
  at::Tensor piece_of(const at::Tensor& whole) const {
    const auto size = whole.numel() / pieces_;
    return whole.narrow(0, size * piece_, size);
  }

  /// A slice without elements.
  Slice empty_slice() const { return {.values = at::empty({0}, options_), .gradients = at::empty({0}, options_)}; }

  /// Bytes that this rank holds between two steps.
  std::int64_t bytes() const {
    std::int64_t bytes = gradients_.defined() ? static_cast<std::int64_t>(gradients_.nbytes()) : 0;
    for (const auto& segment : segments_) {
      bytes += static_cast<std::int64_t>(segment.values.storage().nbytes());
      if (segment.has_copy()) bytes += static_cast<std::int64_t>(segment.master.nbytes());
    }
    return bytes;
  }

  /// A view of the elements of `entry` in `range`, a tensor laid out like the arena from element `begin` on.
  static at::Tensor part(const at::Tensor& range, const ArenaEntry& entry, std::int64_t begin = 0) {
    return range.narrow(0, entry.offset - begin, entry.numel).view(entry.shape);
  }

  /// Copies this rank's stepped pieces, rounded, into the values with which the model computes.
  void publish_masters() const {
    const c10::NoGradGuard no_grad;
    for (const auto& segment : segments_)
      if (segment.has_copy() && segment.values.storage().nbytes() > 0)  // values without memory are gathered later
        piece_of(segment.values).copy_(segment.master);
  }

  /// Hides the values of a segment's parameters while they are not up to date or have no memory: code that reads or
  /// writes one of the parameters then gets a c10::Error that names it. Views of the parameters that were made before
  /// keep the storage of the values; when a strategy frees its memory, as FSDP does, they have no memory either until
  /// the next gather, and an access to them is an error without the parameter's name.
  void hide(const Segment& segment) {
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
  /// Ends hide(): the segment's parameters have their values again.
  void show(const Segment& segment) const {
    for (auto i = segment.first; i < segment.last; ++i)
      entries_[i].parameter.unsafeGetTensorImpl()->set_storage_keep_dtype(segment.values.storage());
  }

  /// False if the data of parameter `i` lies outside the arena or has another shape: loading or converting a module
  /// moves data silently.
  bool owns(std::size_t i) const {
    const auto& entry = entries_[i];
    const auto& segment = segments_[entry.segment];
    const auto* storage = entry.parameter.storage().unsafeGetStorageImpl();
    return (storage == segment.values.storage().unsafeGetStorageImpl() ||
            storage == entry.hollow.unsafeGetStorageImpl()) &&
           entry.parameter.storage_offset() == entry.offset - segment.begin &&
           entry.parameter.sizes() == at::IntArrayRef{entry.shape} && entry.parameter.is_contiguous();
  }
  /// Errors  `config` naming the first parameter that the arena does not own.
  void check_owned() const {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (!owns(i))
        throw Error{Errc::config, "parameter \"" + entries_[i].name +
                                      "\" has left the flat memory, or changed its shape: load or convert a model "
                                      "before the trainer takes it"};
  }

 private:
  static std::string describe(const at::Tensor& tensor) {
    return std::string{c10::toString(tensor.scalar_type())} + " on " + tensor.device().str();
  }

  /// Sets the offsets of entries and segments: a pure function of the options and of the parameters' order, shapes,
  /// units, groups and formats.
  void lay_out(const std::vector<NamedParameter>& parameters, const ArenaOptions& options) {
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
                                      describe(tensor) + " and \"" + first.name + "\" is " + describe(first.tensor)};
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
                          .shape = tensor.sizes().vec()});
      size_ += round_up(tensor.numel(), step);
    }
    close();
  }

  void fill(Segment& segment, const ArenaOptions& options, const at::TensorOptions& master_options) {
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
      if (options.gradients != Gradients::whole) continue;
      entry.gradient = part(gradients_, entry);
      const auto end = entry.offset + entry.numel;
      const auto next = i + 1 < segment.last ? entries_[i + 1].offset : segment.end;
      if (end < next) entry.gap = gradients_.narrow(0, end, next - end);
    }
  }

  void cut_slices(const ArenaOptions& options) {
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

  std::int64_t size_ = 0;
  int pieces_ = 1;
  int piece_ = 0;
  at::TensorOptions options_;
  std::vector<ArenaEntry> entries_;
  std::vector<Segment> segments_;
  std::vector<Slice> slices_;
  at::Tensor gradients_;
};

}  // namespace ddpxx
