// ddpxx/data/char_ids.hpp — a text in memory as the ids of its characters, one, two or four bytes each.
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
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

/// The ids of a text's characters. With at most 256 distinct characters the ids are written into the memory of the
/// text, so that no other memory is allocated.
/// Errors  `data` naming a character that is not in the alphabet.
class CharIds {
 public:
  CharIds(std::string text, const Alphabet& alphabet) {
    std::vector<std::uint32_t> id_of(kNumCodePoints, kUnknown);
    for (std::uint32_t id = 0; const auto character : alphabet.characters()) id_of[character] = id++;
    if (alphabet.size() <= 0x100)
      ids_ = write_in_place(std::move(text), id_of);
    else if (alphabet.size() <= 0x10000)
      ids_ = write<std::uint16_t>(text, id_of);
    else
      ids_ = write<std::uint32_t>(text, id_of);
  }

  /// Number of characters.
  std::int64_t size() const {
    return std::visit([](const auto& ids) { return std::ssize(ids); }, ids_);
  }

  /// Writes the ids of the characters [first, first + count) to `out`.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* out) const {
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

 private:
  static constexpr auto kUnknown = std::numeric_limits<std::uint32_t>::max();

  static std::uint32_t look_up(const std::vector<std::uint32_t>& id_of, char32_t character) {
    const auto id = id_of[character];
    if (id == kUnknown) throw Alphabet::unknown_character(character);
    return id;
  }

  /// Writes one-byte ids over the text. They never overtake the reading position: a character has at least one byte.
  static std::string write_in_place(std::string text, const std::vector<std::uint32_t>& id_of) {
    std::size_t written = 0;
    for_each_code_point(text, [&](char32_t character) {
      text[written++] = static_cast<char>(static_cast<unsigned char>(look_up(id_of, character)));
    });
    text.resize(written);
    return text;
  }

  template <class Id>
  static std::vector<Id> write(std::string_view text, const std::vector<std::uint32_t>& id_of) {
    std::size_t count = 0;
    for_each_code_point(text, [&count](char32_t) { ++count; });
    std::vector<Id> ids(count);
    auto* next = ids.data();
    for_each_code_point(text, [&](char32_t character) { *next++ = static_cast<Id>(look_up(id_of, character)); });
    return ids;
  }

  std::variant<std::string, std::vector<std::uint16_t>, std::vector<std::uint32_t>> ids_;
};

}  // namespace ddpxx
