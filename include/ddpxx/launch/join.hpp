// ddpxx/launch/join.hpp — connects the ranks that a launcher has started.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx {

namespace detail {

/// The options with which a rank of this launch meets the others.
ConnectOptions options_for(const Launch& launch, ConnectOptions options);

/// Where the ranks of this launch meet, with what `options_for` returns.
std::string meeting_address(const Launch& launch, const ConnectOptions& options);

}  // namespace detail

/// Connects the ranks that a launcher has started; without a launcher, makes a world of one rank. A process joins once;
/// further groups, also of all ranks, are made from this one by Group::split().
/// Ranks   Collective.
/// Errors  those of `connect`.
inline Group join(const std::optional<Launch>& launch, ConnectOptions options = {}) {
  if (!launch) return connect("", RankInfo{}, options);
  options = detail::options_for(*launch, std::move(options));
  return connect(detail::meeting_address(*launch, options), launch->rank_info, options);
}

/// Connects the ranks on the device that `pick_device` chooses for `device`: auto, cpu or cuda.
inline Group join(const std::optional<Launch>& launch, std::string_view device, const ConnectConfig& config = {}) {
  const auto rank_info = launch ? launch->rank_info : RankInfo{};
  return join(launch, ConnectOptions{config, pick_device(device, rank_info, config.backend)});
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/launch/join_inl.hpp>
#endif
