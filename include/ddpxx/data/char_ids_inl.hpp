// ddpxx/data/char_ids_inl.hpp — definitions of char_ids.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/data/char_ids.hpp>
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

namespace detail {

inline constexpr auto kUnknownId = std::numeric_limits<std::uint32_t>::max();

inline std::uint32_t id_of_character(const std::vector<std::uint32_t>& id_of, char32_t character) {
  const auto id = id_of[character];
  if (id == kUnknownId) throw Alphabet::unknown_character(character);
  return id;
}

/// Writes one-byte ids over the text. They never overtake the reading position: a character has at least one byte.
inline std::string write_ids_in_place(std::string text, const std::vector<std::uint32_t>& id_of) {
  std::size_t written = 0;
  for_each_code_point(text, [&](char32_t character) {
    text[written++] = static_cast<char>(static_cast<unsigned char>(id_of_character(id_of, character)));
  });
  text.resize(written);
  return text;
}

template <class Id>
std::vector<Id> write_ids(std::string_view text, const std::vector<std::uint32_t>& id_of) {
  std::size_t count = 0;
  for_each_code_point(text, [&count](char32_t) { ++count; });
  std::vector<Id> ids(count);
  auto* next = ids.data();
  for_each_code_point(text, [&](char32_t character) { *next++ = static_cast<Id>(id_of_character(id_of, character)); });
  return ids;
}

}  // namespace detail

DDPXX_INLINE CharIds::CharIds(std::string text, const Alphabet& alphabet) {
  std::vector<std::uint32_t> id_of(kNumCodePoints, detail::kUnknownId);
  for (std::uint32_t id = 0; const auto character : alphabet.characters()) id_of[character] = id++;
  if (alphabet.size() <= 0x100)
    ids_ = detail::write_ids_in_place(std::move(text), id_of);
  else if (alphabet.size() <= 0x10000)
    ids_ = detail::write_ids<std::uint16_t>(text, id_of);
  else
    ids_ = detail::write_ids<std::uint32_t>(text, id_of);
}

DDPXX_INLINE std::int64_t CharIds::size() const {
  return std::visit([](const auto& ids) { return std::ssize(ids); }, ids_);
}

DDPXX_INLINE void CharIds::copy(std::int64_t first, std::int64_t count, std::int64_t* out) const {
  std::visit(
      [&](const auto& ids) {
        const auto* id = ids.data() + first;
        for (std::int64_t i = 0; i < count; ++i)
          if constexpr (std::is_same_v<decltype(id), const char*>)
            out[i] = static_cast<unsigned char>(id[i]);
          else
            out[i] = id[i];
      },
      ids_);
}

}  // namespace ddpxx
