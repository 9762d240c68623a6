// ddpxx/comm/text.hpp — collectives for texts, such as descriptions to compare and verdicts to share.
#pragma once

#include <string>
#include <vector>

#include <ddpxx/comm/group.hpp>

namespace ddpxx {

/// Returns the texts of all ranks, in rank order. The texts may differ in length.
/// Ranks   Collective.
std::vector<std::string> all_gather_text(const std::string& text, const Group& group);

/// Returns the text of rank `root` on every rank.
/// Ranks   Collective.
std::string broadcast_text(const std::string& text, const Group& group, int root = 0);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/text_inl.hpp>
#endif
