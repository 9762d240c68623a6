// ddpxx/config/synonym.hpp — a name that another program uses for a setting or a value.
#pragma once

#include <string_view>

namespace ddpxx {

/// A word of another program, and the last segment of the key, or the value, that it means. It is suggested, never
/// accepted. A root config may add its own to those of text/synonyms.hpp in `static constexpr auto synonyms()`.
struct Synonym {
  std::string_view word;
  std::string_view meant;
};

}  // namespace ddpxx
