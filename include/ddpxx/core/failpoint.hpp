// ddpxx/core/failpoint.hpp — named places in the code where a test may kill, throw or stall.
// Compiled to nothing unless DDPXX_FAILPOINTS is defined. The environment chooses one place and one action:
//   DDPXX_FAILPOINT="NAME:kill" | "NAME:throw" | "NAME:bad_alloc" | "NAME:sleep:MILLISECONDS" | "NAME:errno:NUMBER",
//   then "@N" for the N-th hit only (from 1), then ",rank=R" for one rank of RANK (absent: 0).
// errno is for places that stand for a call of the system, which then fails with that number.
#pragma once

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

#ifdef DDPXX_FAILPOINTS
inline constexpr bool kFailpoints = true;
#else
inline constexpr bool kFailpoints = false;
#endif

/// What DDPXX_FAILPOINT asks for.
struct FailpointOrder {
  enum class Action { kill, raise, bad_alloc, sleep, fail };

  std::string name;
  Action action = Action::kill;
  std::chrono::milliseconds pause{0};
  int error = 0;
  std::optional<std::int64_t> hit;   ///< Every hit where absent.
  std::optional<std::int64_t> rank;  ///< Every rank where absent.
};

/// Errors  `config` naming the text when it follows none of the forms above.
FailpointOrder parse_failpoint(std::string_view text);

namespace detail {

inline void obey(const FailpointOrder& order) {
  switch (order.action) {
    case FailpointOrder::Action::kill:
      std::raise(SIGKILL);
      break;
    case FailpointOrder::Action::raise:
      throw Error{Errc::storage, "failpoint " + order.name + " was told to throw"};
    case FailpointOrder::Action::bad_alloc:
      throw std::bad_alloc{};
    case FailpointOrder::Action::sleep:
      std::this_thread::sleep_for(order.pause);
      break;
    case FailpointOrder::Action::fail:
      errno = order.error;
      break;
  }
}

/// Counts hits of the current order's place; a new order starts a new count.
inline std::int64_t count_hit(const std::string& order_text) {
  static std::mutex mutex;
  static std::string counted;
  static std::int64_t hits = 0;
  const std::lock_guard lock{mutex};
  if (counted != order_text) {
    counted = order_text;
    hits = 0;
  }
  return ++hits;
}

}  // namespace detail

/// Marks a call of the system: true if DDPXX_FAILPOINT says that it fails. errno then says how.
inline bool failpoint_fails(std::string_view name) {
  if constexpr (kFailpoints) {
    const auto text = environment("DDPXX_FAILPOINT");
    if (!text) return false;
    const auto order = parse_failpoint(*text);
    if (order.name != name) return false;
    if (order.rank && *order.rank != environment_integer("RANK").value_or(0)) return false;
    const auto hit = detail::count_hit(*text);
    if (order.hit && *order.hit != hit) return false;
    detail::obey(order);
    return order.action == FailpointOrder::Action::fail;
  }
  return false;
}

/// Marks a place that DDPXX_FAILPOINT can name.
inline void failpoint(std::string_view name) { failpoint_fails(name); }

inline FailpointOrder parse_failpoint(std::string_view text) {
  const auto refuse = [text] {
    return Error{Errc::config, "DDPXX_FAILPOINT=" + std::string{text} +
                                   ": expected NAME:kill, NAME:throw, NAME:bad_alloc, NAME:sleep:MILLISECONDS or "
                                   "NAME:errno:NUMBER, then @HIT, then ,rank=R"};
  };
  const auto whole_number = [&](std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (status != std::errc{} || end != digits.data() + digits.size() || value < 0) throw refuse();
    return value;
  };
  // Cuts `rest` at the separator and returns what stood behind it.
  const auto cut = [](std::string_view& rest, std::string_view separator) -> std::optional<std::string_view> {
    const auto at = rest.find(separator);
    if (at == std::string_view::npos) return std::nullopt;
    const auto tail = rest.substr(at + separator.size());
    rest = rest.substr(0, at);
    return tail;
  };

  FailpointOrder order;
  auto rest = text;
  if (const auto rank = cut(rest, ",rank=")) order.rank = whole_number(*rank);
  if (const auto hit = cut(rest, "@")) order.hit = whole_number(*hit);
  auto action = cut(rest, ":");
  if (!action || rest.empty() || order.hit == 0) throw refuse();
  order.name = rest;
  const auto number = cut(*action, ":");
  if (number.has_value() != (*action == "sleep" || *action == "errno")) throw refuse();
  if (*action == "sleep") {
    order.action = FailpointOrder::Action::sleep;
    order.pause = std::chrono::milliseconds{whole_number(*number)};
  } else if (*action == "errno") {
    order.action = FailpointOrder::Action::fail;
    order.error = static_cast<int>(whole_number(*number));
  } else if (*action == "throw") {
    order.action = FailpointOrder::Action::raise;
  } else if (*action == "bad_alloc") {
    order.action = FailpointOrder::Action::bad_alloc;
  } else if (*action != "kill") {
    throw refuse();
  }
  return order;
}

}  // namespace ddpxx
