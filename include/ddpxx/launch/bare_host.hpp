// ddpxx/launch/bare_host.hpp — the host of MASTER_ADDR, whose IPv6 form may have brackets.
#pragma once

#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx::detail {

/// The host without the brackets of an IPv6 address.
/// Errors  `peer` for one bracket without the other.
inline std::string without_brackets(std::string address) {
  const bool opens = address.starts_with('['), closes = address.ends_with(']');
  if (!opens && !closes) return address;
  if (!opens || !closes || address.size() < 3)
    throw Error{Errc::peer,
                "environment variable MASTER_ADDR=" + harmless(address) + " has a bracket without its other half"};
  return address.substr(1, address.size() - 2);
}

}  // namespace ddpxx::detail
