// ddpxx/comm/text.hpp — collectives over text: descriptions to compare, verdicts to share.
#pragma once

#include <string>
#include <vector>

#include <ddpxx/comm/group.hpp>

namespace ddpxx {

/// The text of every rank, in rank order, on every rank. The texts may differ in length.
/// Ranks   Collective.
std::vector<std::string> all_gather_text(const std::string& text, const Group& group);

/// The text of rank `root`, on every rank.
/// Ranks   Collective.
std::string broadcast_text(const std::string& text, const Group& group, int root = 0);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/text_inl.hpp>
#endif
