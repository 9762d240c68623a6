// ddpxx/data/char_ids.hpp — a text in memory as the ids of its characters, one, two or four bytes each.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/data/alphabet.hpp>

namespace ddpxx {

/// The ids of a text's characters. With at most 256 distinct characters the ids are written into the memory of the
/// text, so that no other memory is allocated.
/// Errors  `data` naming a character that is not in the alphabet.
class CharIds {
 public:
  CharIds(std::string text, const Alphabet& alphabet);

  /// Number of characters.
  std::int64_t size() const;

  /// Writes the ids of the characters [first, first + count) to `out`.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* out) const;

 private:
  std::variant<std::string, std::vector<std::uint16_t>, std::vector<std::uint32_t>> ids_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/char_ids_inl.hpp>
#endif
