// ddpxx/core/describe.hpp — the words in which a config struct describes its fields.
//
// A config is a plain aggregate with defaults. What its fields mean stands beside them:
//
//   struct AdamWConfig {
//     double learning_rate = 3e-4;
//     static constexpr auto describe() {
//       return fields(field<&AdamWConfig::learning_rate>("Peak step size", above(0.0)));
//     }
//   };
//
// An enum is read by name through a function beside it, found by its argument:
//
//   enum class Layout { gpt2, mingpt_ddp };
//   constexpr auto enum_names(Layout) {
//     return std::array{Named{Layout::gpt2, "gpt2"}, Named{Layout::mingpt_ddp, "mingpt_ddp"}};
//   }
//
// A field of type std::variant holds one of several such structs; `choices` names them in the order of its types:
//
//   field<&Run::optimizer>("The optimizer", choices("adamw", "sgd"))
//
// A field that is itself such a struct is a group of keys, `optimizer.learning_rate`. Flattened, its keys are those of
// the struct around it, `learning_rate`, so that programs share a struct and not its name:
//
//   struct Run {
//     TrainerConfig<> trainer{};
//     static constexpr auto describe() { return fields(flatten<&Run::trainer>()); }
//   };
//
// A struct that is not ours to edit is described from outside:
//
//   template <>
//   inline constexpr auto ddpxx::kFieldsOf<Foreign> = ddpxx::fields(ddpxx::field<&Foreign::port>("Where it listens"));
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <ddpxx/core/range.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// What a number counts. `bytes` also reads `25MiB` and `2GB`, `seconds` also `10m` and `1h30m`; the rest is for the
/// reader.
enum class Unit { none, bytes, seconds, steps, epochs, samples, tokens, characters, ranks, threads };

/// The texts a string field takes; or the names of a variant's alternatives, in the order of its types.
struct Choices {
  static constexpr std::size_t kMax = 24;
  std::array<std::string_view, kMax> names{};
  std::size_t count = 0;
};

template <std::convertible_to<std::string_view>... Names>
constexpr Choices choices(Names... names) {
  static_assert(sizeof...(Names) > 0 && sizeof...(Names) <= Choices::kMax, "choices: between 1 and 24 of them");
  return {.names = {std::string_view{names}...}, .count = sizeof...(Names)};
}

/// Siblings that return to their defaults when a later source sets the described field and only an earlier one had set
/// them.
template <class Owner>
struct Resets {
  std::vector<const void*> (*siblings)(const void* owner) = nullptr;
};

/// Marks a secret: the value is read as any other, and is never printed, recorded or compared.
struct Secret {};
constexpr Secret secret() { return {}; }

/// A former name: of a field of the same struct, or, with a dot in it, a whole path. An error tells the new name to
/// those who use the former one.
struct Was {
  std::string_view name;
};
constexpr Was was(std::string_view name) { return {name}; }

/// Marks a setting that names a place to which a run writes, or the run's own folder. Each job of a sweep gets its own
/// places; see config/output_place.hpp.
enum class Output { none, folder, file, run_folder };

/// Whether a configuration is refused, or taken with a warning.
enum class Severity { error, warning };

/// What a rule between fields found, as `check()` returns it. `field` is the path below the struct that checks.
struct FieldError {
  std::string field;
  std::string text;
  Severity severity = Severity::error;
};

/// A value of an enum and the text that stands for it; the first text of a value is the one that is printed.
template <class Enum>
struct Named {
  Enum value;
  std::string_view name;
};
template <class Enum, class Text>
Named(Enum, Text) -> Named<Enum>;

/// All that is said about a field.
struct FieldFacts {
  std::string_view help{};
  Range range{};
  Choices choices{};
  Unit unit = Unit::none;
  bool is_secret = false;
  bool is_flattened = false;  ///< The fields of this struct have the paths of the struct around it.
  Output output = Output::none;
  std::string_view was{};          ///< Its former name.
  std::optional<Resume> resume{};  ///< None: as the group around it, in the end `warn`.
  std::vector<const void*> (*resets)(const void* owner) = nullptr;  ///< Addresses of the fields that are reset.
};

/// The facts of one field of `Owner`.
template <class Owner>
struct Entry {
  FieldFacts facts;
  const void* (*address)(const Owner& owner) = nullptr;
};

namespace detail {

template <class Member>
struct MemberParts;
template <class Class, class Type>
struct MemberParts<Type Class::*> {
  using Owner = Class;
  using Value = Type;
};
template <auto Member>
using OwnerOf = typename MemberParts<decltype(Member)>::Owner;

template <class T>
struct Innermost {
  using type = T;
};
template <class T>
struct Innermost<std::optional<T>> : Innermost<T> {};
template <class T>
struct Innermost<std::vector<T>> : Innermost<T> {};
template <class T, std::size_t N>
struct Innermost<std::array<T, N>> : Innermost<T> {};
template <class T>
struct Innermost<std::map<std::string, T>> : Innermost<T> {};

template <class T>
inline constexpr std::size_t kAlternatives = 0;
template <class... T>
inline constexpr std::size_t kAlternatives<std::variant<T...>> = sizeof...(T);

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, const Range& range) {
  static_assert(is_number<Value> || DurationLike<Value>,
                "field: a range (above, at_least, below, at_most, between) needs a number or a std::chrono duration");
  if constexpr (DurationLike<Value>) {
    constexpr double kMax = 9e9;  // nanoseconds in 64 bits, with room: 285 years
    for (const auto& bound : {range.low, range.high})
      if (bound && !(bound->value > -kMax && bound->value < kMax))
        throw std::invalid_argument{"field: a bound of a duration is finite, and below 285 years"};
    facts.range.is_of_time = true;
  }
  if (range.low) facts.range.low = range.low;
  if (range.high) facts.range.high = range.high;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, const Choices& choices) {
  static_assert(std::same_as<Value, std::string> || kAlternatives<Value> != 0,
                "field: choices(...) needs a std::string or a std::variant; an enum has its own names");
  facts.choices = choices;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, Secret) {
  static_assert(!std::is_aggregate_v<Value> && kAlternatives<Value> == 0,
                "field: secret hides single values; say it of each field in the struct");
  facts.is_secret = true;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, const Was& former) {
  facts.was = former.name;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, Unit unit) {
  static_assert(is_number<Value>, "field: a unit needs a number");
  facts.unit = unit;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, Resume resume) {
  facts.resume = resume;
}
template <class Owner, class Value>
constexpr void add_fact(FieldFacts& facts, Output output) {
  static_assert(std::same_as<Value, std::string> || std::same_as<Value, std::filesystem::path>,
                "field: a place of output is a std::string or a std::filesystem::path");
  facts.output = output;
}
template <class Owner, class Value, class ResetOwner>
constexpr void add_fact(FieldFacts& facts, const Resets<ResetOwner>& resets) {
  static_assert(std::same_as<Owner, ResetOwner>, "field: resets<...>() names siblings, fields of the same struct");
  facts.resets = resets.siblings;
}

}  // namespace detail

/// What `Member` means, followed by facts in any order: a range, choices(...), a Unit, a Resume policy, an Output,
/// resets<...>(), secret(), was("...").
///
/// consteval: the lambda must not get a symbol. g++ gives equal symbols to such lambdas of different files if the
/// structs are in unnamed namespaces and have equal names, and the linker would keep one of them.
template <auto Member, class... Facts>
consteval auto field(std::string_view help, Facts... facts) {
  using Parts = detail::MemberParts<decltype(Member)>;
  using Owner = typename Parts::Owner;
  using Value = typename detail::Innermost<typename Parts::Value>::type;
  Entry<Owner> entry{.facts = {.help = help},
                     .address = [](const Owner& owner) -> const void* { return std::addressof(owner.*Member); }};
  (detail::add_fact<Owner, Value>(entry.facts, facts), ...);
  return entry;
}

/// Gives the fields of the struct `Member` the paths of fields of the struct around it: no group is named after it.
///
/// Errors  `config`, when the table of the config is made, for two fields or groups of one path.
template <auto Member>
consteval auto flatten() {
  using Parts = detail::MemberParts<decltype(Member)>;
  static_assert(std::is_aggregate_v<typename Parts::Value> && std::is_class_v<typename Parts::Value>,
                "flatten: the field is a struct whose fields have names");
  auto entry = field<Member>("");
  entry.facts.is_flattened = true;
  return entry;
}

/// Says that a later source which sets the described field takes back what earlier sources said about `Members`.
template <auto First, auto... Rest>
  requires(std::same_as<detail::OwnerOf<First>, detail::OwnerOf<Rest>> && ...)
consteval auto resets() {
  using Owner = detail::OwnerOf<First>;
  return Resets<Owner>{[](const void* object) {
    const auto& owner = *static_cast<const Owner*>(object);
    return std::vector<const void*>{std::addressof(owner.*First), std::addressof(owner.*Rest)...};
  }};
}

/// What `describe()` returns: the entries of one struct.
template <class Owner, std::same_as<Entry<Owner>>... Rest>
constexpr auto fields(Entry<Owner> first, Rest... rest) {
  return std::array<Entry<Owner>, 1 + sizeof...(Rest)>{first, rest...};
}

/// The entries of one struct in two parts, one after the other.
template <class Owner, std::size_t First, std::size_t Second>
constexpr auto operator+(const std::array<Entry<Owner>, First>& first, const std::array<Entry<Owner>, Second>& second) {
  std::array<Entry<Owner>, First + Second> all{};
  for (std::size_t i = 0; i < First; ++i) all[i] = first[i];
  for (std::size_t i = 0; i < Second; ++i) all[First + i] = second[i];
  return all;
}

/// The entries of a struct that has no describe() of its own; specialise it for one that you cannot edit.
template <class Struct>
inline constexpr std::array<Entry<Struct>, 0> kFieldsOf{};

}  // namespace ddpxx
