// ddpxx/snapshot/quotes.hpp — the error about a file with content that is not allowed, and a text in quotes, as its
// message shows a name that the file has.
#pragma once

#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// Returns the text in quotes, with control characters made visible.
std::string in_quotes(std::string_view text);

/// Throws the error `storage` with this text.
[[noreturn]] inline void refuse_file(const std::string& what) { throw Error{Errc::storage, what}; }

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/quotes_inl.hpp>
#endif
