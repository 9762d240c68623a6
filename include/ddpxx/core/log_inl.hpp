// ddpxx/core/log_inl.hpp — definitions of log.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <cxxabi.h>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/core/log.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

namespace detail {

struct LogSinkState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;  // shared with the threads that are calling it
};
/// Never destroyed: threads may write log lines while the process ends.
inline LogSinkState& log_sink_state() {
  static auto* const state = new LogSinkState;
  return *state;
}

/// True for the control characters of ASCII (but the tab) and of Latin-1, which in UTF-8 are C2 80 to C2 9F.
inline bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\t') || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace detail

DDPXX_INLINE std::string harmless(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(character.size());
    if (character == "\n") {
      result += "\\n";
    } else if (character == "\r") {
      result += "\\r";
    } else if (length != 0 && !detail::is_control(character)) {
      result += character;
    } else {
      for (const char c : character) {
        const auto byte = static_cast<unsigned char>(c);
        result += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xFU]};
      }
    }
  }
  return result;
}

DDPXX_INLINE std::string harmless_lines(std::string_view text) {
  std::string result;
  for (auto end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    result += harmless(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return result + harmless(text);
}

DDPXX_INLINE void set_log_sink(LogSink sink) {
  auto& state = detail::log_sink_state();
  auto shared = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock{state.mutex};
  state.sink.swap(shared);
}

DDPXX_INLINE void Log::write(LogLevel level, const std::string& text) const {
  if (stream_ == nullptr) {
    const auto sink = [] {
      auto& state = detail::log_sink_state();
      const std::lock_guard lock{state.mutex};
      return state.sink;
    }();
    try {
      if (sink) return (*sink)({level, rank_, text});
    } catch (const abi::__forced_unwind&) {  // the thread is cancelled
      throw;
    } catch (...) {  // the line goes to stderr
    }
  }
  const auto line = (level == LogLevel::warning ? "[rank" + std::to_string(rank_) + "] warning: " : "") + text + '\n';
  auto& stream = stream_ == nullptr ? std::cerr : *stream_;
  stream.clear();  // a disk that was full for an earlier line may have room now
  stream.write(line.data(), static_cast<std::streamsize>(line.size())).flush();
}

}  // namespace ddpxx
