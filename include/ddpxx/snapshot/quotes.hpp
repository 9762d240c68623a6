// ddpxx/snapshot/quotes.hpp — a text in quotes, as messages show a name that a file has.
#pragma once

#include <string>
#include <string_view>

namespace ddpxx::detail {

/// Returns the text in quotes, with control characters made visible.
std::string in_quotes(std::string_view text);

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/quotes_inl.hpp>
#endif
