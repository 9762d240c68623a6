// ddpxx/launch/plan/run_id.hpp — which texts may be the id of a run.
#pragma once

#include <string_view>

namespace ddpxx::detail {

/// True if a run may have this id, which also names a folder of logs.
inline bool is_run_id(std::string_view text) {
  static constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.size() <= 200 && !text.starts_with('.') &&
         text.find_first_not_of(kCharacters) == std::string_view::npos;
}

}  // namespace ddpxx::detail
