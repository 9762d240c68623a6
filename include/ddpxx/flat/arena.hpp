// ddpxx/flat/arena.hpp — parameters and gradients in contiguous memory; named ranges of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

namespace ddpxx {

/// A parameter to be put into an arena. A segment may begin where `unit` changes, a slice where `group` changes.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  int unit = 0;
  int group = 0;
  std::optional<at::ScalarType> format = {};  ///< Type in which the model computes; none: the parameter's own type.
};

/// Whether a parameter may be frozen after an arena took it: its gradients are zeros then.
enum class Freezing { allowed, refused };

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
  std::size_t index = 0;     ///< In the arena.
  bool trains = true;        ///< Whether the parameter required a gradient when the arena took it.
  std::int64_t changes = 0;  ///< Autograd's count of changes in place up to which nothing was lost.
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
  std::int64_t offset = 0;  ///< Index of the first of these elements in the parameter.
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
  std::vector<SliceEntry> entries() const;
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
/// zero from the first gradient of a step until clipping, so that norms, checks for infinite numbers and communication
/// hooks may read them. Other gaps may hold any number: nothing reads them.
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
  explicit Arena(const std::vector<NamedParameter>& parameters, const ArenaOptions& options = {});

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
  std::int64_t bytes() const;

  /// A view of the elements of `entry` in `range`, a tensor laid out like the arena from element `begin` on.
  static at::Tensor part(const at::Tensor& range, const ArenaEntry& entry, std::int64_t begin = 0) {
    return range.narrow(0, entry.offset - begin, entry.numel).view(entry.shape);
  }

  /// Copies this rank's stepped pieces, rounded, into the values with which the model computes.
  void publish_masters() const;

  /// Hides the values of a segment's parameters while they are not up to date or have no memory: code that reads or
  /// writes one of the parameters then gets a c10::Error that names it. Views of the parameters that were made before
  /// keep the storage of the values; when a strategy frees its memory, as FSDP does, they have no memory either until
  /// the next gather, and an access to them is an error without the parameter's name.
  void hide(const Segment& segment);
  /// Ends hide(): the segment's parameters have their values again.
  void show(const Segment& segment) const {
    for (auto i = segment.first; i < segment.last; ++i)
      entries_[i].parameter.unsafeGetTensorImpl()->set_storage_keep_dtype(segment.values.storage());
  }

  /// False if the data of parameter `i` lies outside the arena or has another shape: loading or converting a module
  /// moves data silently.
  bool owns(std::size_t i) const;
  /// Errors  `config` naming the first parameter that the arena does not own, or that was unfrozen since the arena took
  ///         it, or frozen where `freezing` refuses that.
  void check_owned(Freezing freezing = Freezing::allowed) const;
  /// Refuses changes in place that the next finish_step() or gather would overwrite: those of parameters whose values
  /// the arena also keeps as a copy in `master`. Changes by way of the slices do not count, nor those that the program
  /// has undone, nor those of frozen parameters whose values this rank has. Changes by way of `parameter.data()` are
  /// not seen.
  ///
  /// Errors  `config` naming the first parameter that was changed so.
  void check_unchanged() const;
  /// Lets check_unchanged() forget the changes so far, because `master` has replaced them.
  void forget_changes();

 private:
  /// Sets the offsets of entries and segments: a pure function of the options and of the parameters' order, shapes,
  /// units, groups and formats.
  void lay_out(const std::vector<NamedParameter>& parameters, const ArenaOptions& options);

  /// Whether the present values of a parameter with a copy stay, or are those of its copy.
  bool keeps_values(const ArenaEntry& entry) const;

  void fill(Segment& segment, const ArenaOptions& options, const at::TensorOptions& master_options);

  void cut_slices(const ArenaOptions& options);

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

#ifndef DDPXX_CORE
#include <ddpxx/flat/arena_inl.hpp>
#endif
