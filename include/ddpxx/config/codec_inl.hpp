// ddpxx/config/codec_inl.hpp — the functions of codec.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/number.hpp>
#include <ddpxx/config/text/whole_limits.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE Decoded ConfigCodec<bool>::decode(bool& field, const RawValue& value, const FieldFacts&) {
  if (auto wrong = not_a_text(value, "true or false")) return {.problem = *wrong, .place = value.place};
  const auto truth = read_bool(value.text);
  if (!truth)
    return {.problem = shown(value.text) + " is not true or false (allowed: true, false, yes, no, on, off, 1, 0)",
            .place = value.place};
  field = *truth;
  return {};
}

DDPXX_INLINE std::string ConfigCodec<bool>::print(bool field) { return field ? "true" : "false"; }

DDPXX_INLINE ValueShape ConfigCodec<bool>::shape(const FieldFacts&) { return {.kind = ValueShape::Kind::truth}; }

DDPXX_INLINE Decoded ConfigCodec<std::string>::decode(std::string& field, const RawValue& value,
                                                      const FieldFacts& facts) {
  if (auto wrong = not_a_text(value, "a text")) return {.problem = *wrong, .place = value.place};
  const auto names = choices_of(facts);
  if (!names.empty() && std::ranges::find(names, value.text) == names.end())
    return {.problem = not_a_choice(value.text, names), .place = value.place};
  field = value.text;
  return {};
}

DDPXX_INLINE std::string ConfigCodec<std::string>::print(const std::string& field) {
  return yaml_quoted(detail::escape_references(field));
}

DDPXX_INLINE ValueShape ConfigCodec<std::string>::shape(const FieldFacts& facts) {
  return {.kind = ValueShape::Kind::text, .names = choices_of(facts)};
}

DDPXX_INLINE Decoded ConfigCodec<std::filesystem::path>::decode(std::filesystem::path& field, const RawValue& value,
                                                                const FieldFacts&) {
  if (auto wrong = not_a_text(value, "a path")) return {.problem = *wrong, .place = value.place};
  field = value.text;
  return {};
}

DDPXX_INLINE std::string ConfigCodec<std::filesystem::path>::print(const std::filesystem::path& field) {
  return yaml_quoted(detail::escape_references(field.string()));
}

DDPXX_INLINE ValueShape ConfigCodec<std::filesystem::path>::shape(const FieldFacts&) {
  return {.kind = ValueShape::Kind::path};
}

namespace detail {

DDPXX_INLINE Decoded decode_whole(std::uint64_t& bits, const RawValue& value, const FieldFacts& facts,
                                  const WholeLimits& limits) {
  if (auto wrong = not_a_text(value, "a whole number")) return {.problem = *wrong, .place = value.place};
  const auto read = read_whole(value.text, facts, limits);
  if (read.value) bits = read.value->negative ? 0 - read.value->magnitude : read.value->magnitude;
  return {.problem = read.problem, .notice = read.notice, .place = value.place};
}

template <std::floating_point Real>
Decoded decode_real_as(Real& field, const RawValue& value, const FieldFacts& facts) {
  if (auto wrong = not_a_text(value, "a number")) return {.problem = *wrong, .place = value.place};
  const auto read = read_real<Real>(value.text, facts);
  if (read.value) field = *read.value;
  return {.problem = read.problem, .notice = read.notice, .place = value.place};
}

DDPXX_INLINE Decoded decode_real(double& field, const RawValue& value, const FieldFacts& facts) {
  return decode_real_as(field, value, facts);
}

DDPXX_INLINE Decoded decode_real(float& field, const RawValue& value, const FieldFacts& facts) {
  return decode_real_as(field, value, facts);
}

DDPXX_INLINE Decoded decode_choice(std::size_t& index, const RawValue& value, const FieldFacts& facts) {
  if (auto wrong = not_a_text(value, "a name")) return {.problem = *wrong, .place = value.place};
  const auto names = choices_of(facts);
  const auto found = std::ranges::find(names, value.text);
  if (found == names.end()) return {.problem = not_a_choice(value.text, names), .place = value.place};
  index = static_cast<std::size_t>(found - names.begin());
  return {};
}

}  // namespace detail

}  // namespace ddpxx
