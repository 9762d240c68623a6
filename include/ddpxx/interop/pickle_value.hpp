// ddpxx/interop/pickle_value.hpp — the values that a .pt file may hold: Python's numbers, strings, containers and
// tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

class PickleValue;

using PickleList = std::vector<PickleValue>;

struct PickleTuple {
  std::vector<PickleValue> items;
};

/// A dict or an OrderedDict, in the order of insertion. Keys are strings and integers.
struct PickleDict {
  std::vector<std::pair<PickleValue, PickleValue>> entries;

  /// Appends an entry; the key must be new.
  PickleDict& add(PickleValue key, PickleValue value);

  /// Returns the value under a key, or null. Takes linear time.
  const PickleValue* find(std::string_view key) const;
};

/// A value of Python: None, a bool, an integer, a float, a string, a list, a tuple, a dict or a tensor.
class PickleValue {
 public:
  // Implicit, so that values are written as in Python: NOLINTBEGIN(google-explicit-constructor)
  PickleValue() = default;
  template <class T>
    requires std::same_as<T, bool> || std::same_as<T, double> || std::same_as<T, std::string> ||
             std::same_as<T, PickleList> || std::same_as<T, PickleTuple> || std::same_as<T, PickleDict> ||
             std::same_as<T, at::Tensor>
  PickleValue(T value) : held_{std::move(value)} {}
  template <std::signed_integral T>
  PickleValue(T value) : held_{std::int64_t{value}} {}
  PickleValue(std::string_view text) : held_{std::string{text}} {}
  PickleValue(const char* text) : held_{std::string{text}} {}
  // NOLINTEND(google-explicit-constructor)

  bool is_none() const noexcept { return held_.index() == 0; }

  /// Returns the content if it is a T, or null. T is bool, std::int64_t, double, std::string, PickleList, PickleTuple,
  /// PickleDict or at::Tensor.
  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&held_);
  }

  /// Returns the content, which must be a T.
  /// Errors  `storage`, saying what `name` is and what it should be.
  template <class T>
  const T& get(std::string_view name) const {
    if (const auto* value = get_if<T>()) return *value;
    throw Error{Errc::storage, std::string{name} + " is " + std::string{kind()} + ", and should be " +
                                   std::string{PickleValue{T{}}.kind()}};
  }

  /// Returns the kind of value as messages name it, such as "a tensor".
  std::string_view kind() const noexcept {
    static constexpr std::string_view kKinds[] = {"None",   "a bool",  "an integer", "a float", "a text",
                                                  "a list", "a tuple", "a dict",     "a tensor"};
    return kKinds[held_.index()];
  }

  /// Calls `visit` with the content; None is a std::monostate.
  template <class Visit>
  decltype(auto) visit(Visit&& visit) const {
    return std::visit(std::forward<Visit>(visit), held_);
  }

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, PickleList, PickleTuple, PickleDict, at::Tensor>
      held_;
};

inline PickleDict& PickleDict::add(PickleValue key, PickleValue value) {
  entries.emplace_back(std::move(key), std::move(value));
  return *this;
}

inline const PickleValue* PickleDict::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (const auto* text = name.get_if<std::string>(); text != nullptr && *text == key) return &value;
  return nullptr;
}

/// The largest depth of nested containers.
inline constexpr std::size_t kMaxPickleDepth = 100;

namespace detail {

/// The types of tensors in .pt files, by the name of their storage class.
struct PickledType {
  std::string_view storage;
  at::ScalarType dtype;
};
inline constexpr PickledType kPickledTypes[] = {{"FloatStorage", at::kFloat},       {"DoubleStorage", at::kDouble},
                                                {"HalfStorage", at::kHalf},         {"LongStorage", at::kLong},
                                                {"IntStorage", at::kInt},           {"ShortStorage", at::kShort},
                                                {"ByteStorage", at::kByte},         {"CharStorage", at::kChar},
                                                {"BFloat16Storage", at::kBFloat16}, {"BoolStorage", at::kBool}};

}  // namespace detail

}  // namespace ddpxx
