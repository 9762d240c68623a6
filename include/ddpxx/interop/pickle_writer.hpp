// ddpxx/interop/pickle_writer.hpp — writes values as a pickle of protocol 2, which torch.load reads with
// weights_only=True.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/utf8.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx {

/// Returns the key of a tensor's storage in the archive. Tensors that share a storage get one key.
using NameStorage = std::function<std::string(const at::Tensor&)>;

/// Returns the value as a pickle. Tensors keep their strides; requires_grad is not written.
/// Errors  `storage` for values that a reader would refuse: a tensor without strides or of another type, a string that
///         is not UTF-8, a key that is neither string nor integer, and containers that nest too deeply.
std::string print_pickle(const PickleValue& value, const NameStorage& name_storage);

namespace detail {

inline std::string_view storage_type(const at::Tensor& tensor) {
  if (!tensor.defined()) refuse_file("a tensor is undefined");
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_conj() || tensor.is_neg() ||
      tensor.is_meta())
    refuse_file("a tensor has no plain values in memory; make it dense first");
  for (const auto& [storage, dtype] : kPickledTypes)
    if (dtype == tensor.scalar_type()) return storage;
  refuse_file(std::string{"a tensor is of the type "} + at::toString(tensor.scalar_type()) +
              ", which ddpxx does not write to .pt files");
}

/// Returns the number of elements of the tensor's type that its whole storage holds.
inline std::int64_t storage_length(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.storage().nbytes()) / tensor.element_size();
}

/// Writes without a memo: an object that comes twice is written twice.
class Pickler {
 public:
  explicit Pickler(const NameStorage& name_storage) : name_storage_{name_storage} {}

  std::string run(const PickleValue& value) {
    pickle_ = "\x80\x02";
    write(value, 0);
    pickle_ += '.';
    return std::move(pickle_);
  }

 private:
  template <class T>
  void little_endian(T number) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      pickle_ += static_cast<char>((static_cast<std::uint64_t>(number) >> (8 * i)) & 0xFFU);
  }

  void write(const PickleValue& value, std::size_t depth) {
    if (depth > kMaxPickleDepth) refuse_file("its containers nest deeper than readers accept");
    value.visit([&](const auto& content) { put(content, depth); });
  }

  void put(std::monostate, std::size_t) { pickle_ += 'N'; }
  void put(bool value, std::size_t) { pickle_ += value ? '\x88' : '\x89'; }
  void put(std::int64_t number, std::size_t) {
    if (number >= std::numeric_limits<std::int32_t>::min() && number <= std::numeric_limits<std::int32_t>::max()) {
      pickle_ += 'J';
      little_endian(static_cast<std::int32_t>(number));
    } else {
      pickle_ += "\x8a\x08";
      little_endian(number);
    }
  }
  void put(double number, std::size_t) {
    const auto bits = std::bit_cast<std::uint64_t>(number);
    pickle_ += 'G';
    for (int shift = 56; shift >= 0; shift -= 8) pickle_ += static_cast<char>((bits >> shift) & 0xFFU);
  }
  void put(const std::string& text, std::size_t) { put_text(text); }
  void put_text(std::string_view text) {
    if (find_malformed_utf8(text) != std::string_view::npos || text.size() > std::numeric_limits<std::uint32_t>::max())
      refuse_file("the text " + in_quotes(text.substr(0, 100)) + " is not UTF-8, or too long");
    pickle_ += 'X';
    little_endian(static_cast<std::uint32_t>(text.size()));
    pickle_ += text;
  }
  void put(const PickleList& list, std::size_t depth) {
    pickle_ += "](";
    for (const auto& item : list) write(item, depth + 1);
    pickle_ += 'e';
  }
  void put(const PickleTuple& tuple, std::size_t depth) {
    pickle_ += '(';
    for (const auto& item : tuple.items) write(item, depth + 1);
    pickle_ += 't';
  }
  void put(const PickleDict& dict, std::size_t depth) {
    pickle_ += "}(";
    for (const auto& [key, value] : dict.entries) {
      if (key.get_if<std::string>() == nullptr && key.get_if<std::int64_t>() == nullptr)
        refuse_file("a key is " + std::string{key.kind()} + ", neither a text nor an integer");
      write(key, depth + 1);
      write(value, depth + 1);
    }
    pickle_ += 'u';
  }
  void put(const at::Tensor& tensor, std::size_t depth) {
    const auto type = storage_type(tensor);
    const auto numbers = [&](at::IntArrayRef all) {
      pickle_ += '(';
      for (const auto number : all) put(number, depth);
      pickle_ += 't';
    };
    pickle_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    put_text("storage");
    pickle_ += "ctorch\n" + std::string{type} + '\n';
    put_text(name_storage_(tensor));
    put_text("cpu");
    put(storage_length(tensor), depth);
    pickle_ += "tQ";
    put(tensor.storage_offset(), depth);
    numbers(tensor.sizes());
    numbers(tensor.strides());
    pickle_ +=
        "\x89"
        "ccollections\nOrderedDict\n)RtR";  // requires_grad is False, and there are no hooks
  }

  const NameStorage& name_storage_;
  std::string pickle_;
};

}  // namespace detail

inline std::string print_pickle(const PickleValue& value, const NameStorage& name_storage) {
  return detail::Pickler{name_storage}.run(value);
}

}  // namespace ddpxx
