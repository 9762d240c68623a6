// ddpxx/config/config_struct.hpp — what a struct must be to be a config, and what the compiler says of one that is not.
#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/duration_codec.hpp>
#include <ddpxx/config/map_codec.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A plain aggregate with defaults, of values and of further such structs.
template <class T>
concept ConfigStruct = std::is_class_v<T> && std::is_aggregate_v<T> && std::default_initializable<T> && !ConfigLeaf<T>;

namespace detail {
template <class T>
inline constexpr bool kIsVariant = false;
template <ConfigStruct... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
}  // namespace detail

/// One of several config structs.
template <class T>
concept ConfigAlternatives = detail::kIsVariant<T>;

/// `describe()`, where there is one, speaks of fields of its own struct.
template <class T>
concept DescribesItself = !requires { T::describe(); } ||
                          requires { requires std::same_as<typename decltype(T::describe())::value_type, Entry<T>>; };

/// `check()`, where there is one, is const and returns what it found.
template <class T>
concept ChecksItself = !requires(T& config) { config.check(); } || requires(const T& config) {
  { config.check() } -> std::same_as<std::vector<FieldError>>;
};

namespace detail {

struct Anything {
  template <class T>
  [[noreturn]] operator T&() const {  // NOLINT(google-explicit-constructor): it stands for a value of any type
    std::terminate();                 // never called; clang wants to see a body all the same
  }
};
template <std::size_t>
using AnythingAt = Anything;

template <class T, class Before, class After>
inline constexpr bool kTakesBraces = false;
template <class T, std::size_t... Before, std::size_t... After>
inline constexpr bool kTakesBraces<T, std::index_sequence<Before...>, std::index_sequence<After...>> = requires {
  T{AnythingAt<Before>{}..., {}, AnythingAt<After>{}...};
};

/// A C array counts once for each element, and `{}` in the place of the first one stands for all: then the values
/// that follow are too many.
template <class T, std::size_t... I>
consteval bool finds_c_array(std::index_sequence<I...>) {
  constexpr std::size_t kCount = sizeof...(I);
  return !(kTakesBraces<T, std::make_index_sequence<I>, std::make_index_sequence<kCount - 1 - I>> && ...);
}

inline constexpr std::size_t kMostFields = 200;  // of Boost.PFR

template <class T>
consteval bool has_few_fields() {
  return boost::pfr::tuple_size_v<T> <= kMostFields;
}

template <class T>
consteval bool has_c_array() {
  if constexpr (has_few_fields<T>()) return finds_c_array<T>(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
  return false;
}

template <class T>
consteval bool explain_config() {
  static_assert(has_few_fields<T>(),
                "config: a struct has at most 200 fields (a C array counts each element); "
                "group them into structs");
  static_assert(!has_c_array<T>(), "config: a C array has no name per field; use std::array or std::vector");
  static_assert(DescribesItself<T>,
                "config: describe() returns fields(field<&Struct::member>(...), ...) of its own struct");
  static_assert(ChecksItself<T>, "config: check() is `std::vector<FieldError> check() const`");
  return has_few_fields<T>() && !has_c_array<T>() && DescribesItself<T> && ChecksItself<T>;
}

}  // namespace detail

}  // namespace ddpxx
