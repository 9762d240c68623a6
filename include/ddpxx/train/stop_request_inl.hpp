// ddpxx/train/stop_request_inl.hpp — definitions of stop_request.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/train/stop_request.hpp>

namespace ddpxx {

DDPXX_INLINE void StopRequest::answer(const Group& group) {
  const auto all = all_gather_text(heard(), group);
  is_asked_ = false;
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  if (first == all.end())
    reason_ = "request";
  else if (all.size() == 1)
    reason_ = *first;
  else if (std::count(all.begin(), all.end(), *first) == static_cast<std::ptrdiff_t>(all.size()))
    reason_ = *first + " on all ranks";
  else
    reason_ = *first + " on rank " + std::to_string(first - all.begin());
}

DDPXX_INLINE Error StopRequest::error(std::int64_t step, const std::string& save_dir) const {
  const auto number = std::to_string(step);
  return {Errc::stopped, "stopped by " + reason_ + " after step " + number +
                             (save_dir.empty() ? "; nothing was saved, since training.save_dir is empty"
                                               : "; the snapshot of step " + number + " is in " + harmless(save_dir) +
                                                     ": run the same command again to resume from it")};
}

}  // namespace ddpxx
