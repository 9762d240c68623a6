// ddpxx/snapshot/quotes_inl.hpp — the definitions of quotes.hpp.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx::detail {

DDPXX_INLINE std::string in_quotes(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace ddpxx::detail
