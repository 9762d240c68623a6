// ddpxx/config/config_struct.hpp — the rules for config structs, and the compiler's messages about structs that
// break them.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/pfr/core.hpp>
#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/duration_codec.hpp>
#include <ddpxx/config/map_codec.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A plain aggregate with defaults, whose fields are values or further such structs.
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

/// `describe()`, if the struct has one, describes fields of that struct only.
template <class T>
concept DescribesItself = !requires { T::describe(); } ||
                          requires { requires std::same_as<typename decltype(T::describe())::value_type, Entry<T>>; };

/// `check()`, if the struct has one, is const and returns the errors that it found.
template <class T>
concept ChecksItself = !requires(T& config) { config.check(); } || requires(const T& config) {
  { config.check() } -> std::same_as<std::vector<FieldError>>;
};

namespace detail {

struct Anything {
  template <class T>
    requires std::is_copy_constructible_v<T>
  [[noreturn]] operator T&() const {  // NOLINT(google-explicit-constructor): it converts to any type
    std::terminate();                 // never called, but clang requires a body
  }
  template <class T>
    requires(!std::is_copy_constructible_v<T>)
  [[noreturn]] operator T() const {  // NOLINT(google-explicit-constructor): such as std::unique_ptr
    std::terminate();
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

/// True if a field is a C array. Such a field counts once for each element, but `{}` in the place of its first element
/// initialises the whole array, so that the initialisers after it are too many.
template <class T, std::size_t... I>
consteval bool finds_c_array(std::index_sequence<I...>) {
  constexpr std::size_t kCount = sizeof...(I);
  return !(kTakesBraces<T, std::make_index_sequence<I>, std::make_index_sequence<kCount - 1 - I>> && ...);
}

inline constexpr std::size_t kMaxFields = 200;  // the limit of Boost.PFR

template <class T>
consteval bool has_few_fields() {
  return boost::pfr::tuple_size_v<T> <= kMaxFields;
}

template <class T>
consteval bool has_c_array() {
  if constexpr (has_few_fields<T>()) return finds_c_array<T>(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
  return false;
}

/// Converts to a base class of `T`.
template <class T>
struct BaseOf {
  template <class Base>
    requires(std::is_base_of_v<Base, T> && !std::same_as<Base, T>)
  operator Base() const;  // NOLINT(google-explicit-constructor): it initialises the base in T{...}
};

/// An aggregate with a base class.
template <class T>
inline constexpr bool kHasBase = requires { T{BaseOf<T>{}}; };

/// A struct whose fields Boost.PFR can list.
template <class T>
consteval bool is_reflected() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && std::default_initializable<T> && !kHasBase<T>)
    return has_few_fields<T>() && !has_c_array<T>();
  return false;
}

/// True if `walk` accepts `T` and all structs in it.
template <class T>
consteval bool is_config_tree();

template <class T>
inline constexpr bool kIsTreeOfAlternatives = false;
template <class... T>
inline constexpr bool kIsTreeOfAlternatives<std::variant<T...>> = (is_config_tree<T>() && ...);

template <class T>
consteval bool is_field_of_tree() {
  if constexpr (ConfigLeaf<T>)
    return true;
  else if constexpr (ConfigAlternatives<T>)
    return kIsTreeOfAlternatives<T>;
  else
    return is_config_tree<T>();
}

template <class T>
consteval bool is_config_tree() {
  if constexpr (ConfigStruct<T> && is_reflected<T>())
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (is_field_of_tree<std::remove_cv_t<boost::pfr::tuple_element_t<I, T>>>() && ...);
    }(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
  return false;
}

/// The name of a field as a template argument, so that the compiler's message shows it.
template <std::size_t Size>
struct FieldName {
  std::array<char, Size + 1> text{};
  explicit constexpr FieldName(std::string_view name) { std::copy_n(name.begin(), Size, text.begin()); }
};

template <class T>
inline constexpr bool kIsReadable = ConfigLeaf<T> || ConfigStruct<T> || ConfigAlternatives<T>;

/// Fails for a field whose type cannot be read from a file; the compiler names the struct, the field and its type.
template <class Struct, auto Name, class Type>
consteval bool explain_field() {
  using Value = typename Innermost<Type>::type;
  constexpr bool has_nameless_enum = std::is_enum_v<Value> && !ConfigLeaf<Value>;
  constexpr bool has_odd_duration = DurationLike<Value> && !ConfigLeaf<Value>;
  static_assert(!has_nameless_enum,
                "config: an enum needs names: write `constexpr auto enum_names(E) { return "
                "std::array{ddpxx::Named{E::value, \"value\"}, ...}; }` beside it");
  static_assert(
      has_nameless_enum || has_odd_duration,
      "config: a field is a bool, an integer, a double or float, a std::string, a std::filesystem::path, a std::chrono "
      "duration, an enum with enum_names, a std::optional, std::vector, std::array or std::map by std::string of "
      "those, "
      "a struct with defaults, or a std::variant of such structs");
  static_assert(!has_odd_duration,
                "config: a std::chrono duration has an integer count and a period of whole nanoseconds; for seconds as "
                "a floating-point number use a double with Unit::seconds");
  return false;
}

template <class T, std::size_t I>
consteval bool explain_field_at() {
  static_assert(!std::is_const_v<boost::pfr::tuple_element_t<I, T>>,
                "config: a field is not const: files, the environment and arguments set it");
  using Type = std::remove_cv_t<boost::pfr::tuple_element_t<I, T>>;
  if constexpr (kIsReadable<Type>) {
    return true;  // without the field's name, which takes the compiler most of the time that a field costs
  } else {
    constexpr std::string_view kName = boost::pfr::get_name<I, T>();
    return explain_field<T, FieldName<kName.size()>{kName}, Type>();
  }
}

template <class T>
consteval bool explain_fields() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (explain_field_at<T, I>() && ...);
  }(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
}

/// Fails to compile if `T` as a whole cannot be a config, with a sentence that says why.
template <class T>
consteval bool explain_config_struct() {
  static_assert(!std::is_aggregate_v<T> || !kHasBase<T>,
                "config: a config has no base, whose fields would have no names: make the base a field");
  static_assert(
      std::is_aggregate_v<T>,
      "config: a config is a plain struct whose fields have defaults: without constructors, private or virtual "
      "members");
  static_assert(!std::is_aggregate_v<T> || std::default_initializable<T>,
                "config: each field of a config has a default: write `= {}` behind it");
  return ConfigStruct<T> && !kHasBase<T>;
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
  if constexpr (has_few_fields<T>() && !has_c_array<T>() && DescribesItself<T> && ChecksItself<T>)
    return explain_fields<T>();
  return false;
}

}  // namespace detail

}  // namespace ddpxx
