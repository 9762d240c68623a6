// ddpxx/interop/pickle_objects.hpp — the objects that a pickle builds, and one of them as a value in the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx::detail {

[[noreturn]] inline void refuse_pickle(const std::string& what) { throw Error{Errc::storage, "the pickle " + what}; }

/// The Python classes and functions that a pickle may use.
enum class PickledClass { ordered_dict, counter, size, tensor, parameter };

/// The objects of a pickle. They refer to each other by index, so cycles and long chains cannot leak or overflow the
/// stack.
class PickleObjects {
 public:
  using Id = std::uint32_t;
  struct List {
    std::vector<Id> items;
  };
  struct Tuple {
    std::vector<Id> items;
  };
  struct Dict {
    std::vector<Id> items;  ///< Keys and values in turn: key, value, key, value.
    bool ordered = false;
  };
  struct StorageType {
    at::ScalarType dtype;
  };
  struct Storage {
    at::Tensor flat;
  };
  using Object = std::variant<std::monostate, bool, std::int64_t, double, std::string_view, List, Tuple, Dict,
                              PickledClass, StorageType, Storage, at::Tensor>;

  /// Accepts at most `max_objects` objects.
  explicit PickleObjects(std::size_t max_objects) : max_objects_{max_objects} {}

  Id add(Object object) {
    if (objects_.size() >= max_objects_)
      refuse_pickle("has more than " + std::to_string(max_objects_) + " objects; for its size that is the limit");
    objects_.push_back(std::move(object));
    return static_cast<Id>(objects_.size() - 1);
  }

  /// Returns an object that must be a T. `what` names a T in the error.
  template <class T>
  T& get(Id id, std::string_view what) {
    auto* found = std::get_if<T>(&objects_[id]);
    if (found == nullptr) refuse_pickle("has something else where " + std::string{what} + " belongs");
    return *found;
  }

  /// Returns the sizes or strides of a tensor.
  std::vector<std::int64_t> integers(Id tuple) {
    const auto& items = get<Tuple>(tuple, "a tuple").items;
    if (items.size() > 64) refuse_pickle("has a tensor of more than 64 dimensions");
    std::vector<std::int64_t> numbers;
    for (const auto item : items) numbers.push_back(get<std::int64_t>(item, "an integer"));
    return numbers;
  }

  /// Returns an object and all that it refers to, as a value. An object that is referred to twice is copied. The copies
  /// may take at most `max_bytes` together.
  PickleValue value(Id id, std::size_t max_bytes) {
    allowance_ = max_bytes;
    return expand(id, 0);
  }

 private:
  PickleValue expand(Id id, std::size_t depth) {
    if (depth > kMaxPickleDepth) refuse_pickle("holds itself, or nests deeper than " + std::to_string(kMaxPickleDepth));
    const auto all = [&](const std::vector<Id>& items) {
      spend(items.size() * sizeof(PickleValue));
      PickleList values;
      values.reserve(items.size());
      for (const auto item : items) values.push_back(expand(item, depth + 1));
      return values;
    };
    return std::visit(
        [&]<class T>(const T& object) -> PickleValue {
          if constexpr (std::is_same_v<T, std::monostate>) {
            return {};
          } else if constexpr (std::is_same_v<T, std::string_view>) {
            spend(object.size());
            return std::string{object};
          } else if constexpr (std::is_same_v<T, List>) {
            return all(object.items);
          } else if constexpr (std::is_same_v<T, Tuple>) {
            return PickleTuple{all(object.items)};
          } else if constexpr (std::is_same_v<T, Dict>) {
            return expand_dict(object, depth);
          } else if constexpr (std::is_same_v<T, PickledClass> || std::is_same_v<T, StorageType> ||
                               std::is_same_v<T, Storage>) {
            refuse_pickle("has the name of a type, or a storage, in the place of a value");
          } else {
            return object;
          }
        },
        objects_[id]);
  }

  PickleDict expand_dict(const Dict& dict, std::size_t depth) {
    spend(dict.items.size() * sizeof(PickleValue));
    PickleDict result;
    std::set<std::string_view> texts;  // an ordered set: a hostile file could choose strings with equal hashes
    std::set<std::int64_t> numbers;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const auto& key = objects_[dict.items[i]];
      const auto* text = std::get_if<std::string_view>(&key);
      const auto* number = std::get_if<std::int64_t>(&key);
      if (text == nullptr && number == nullptr) refuse_pickle("has a key that is neither a text nor an integer");
      if (!(text != nullptr ? texts.insert(*text).second : numbers.insert(*number).second))
        refuse_pickle("has a key twice: " +
                      (text != nullptr ? in_quotes(text->substr(0, 100)) : std::to_string(*number)));
      auto name = expand(dict.items[i], depth + 1);
      result.add(std::move(name), expand(dict.items[i + 1], depth + 1));
    }
    return result;
  }

  void spend(std::size_t bytes) {
    if (bytes > allowance_) refuse_pickle("repeats its objects until they take far more memory than its text");
    allowance_ -= bytes;
  }

  std::deque<Object> objects_;  // a deque does not move its elements when it grows
  std::size_t max_objects_;
  std::size_t allowance_ = 0;
};

}  // namespace ddpxx::detail
