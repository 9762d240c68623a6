// ddpxx/train/metric_sums_inl.hpp — definitions of metric_sums.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/utf8.hpp>
#include <ddpxx/nn/loss.hpp>
#include <ddpxx/train/metric_sums.hpp>
#include <ddpxx/train/same_run.hpp>

namespace ddpxx {

namespace detail {

DDPXX_INLINE std::vector<std::string> names_of(const std::vector<NamedSum>& metrics) {
  std::vector<std::string> names;
  for (const auto& metric : metrics) names.push_back(metric.name);
  return names;
}

DDPXX_INLINE std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + harmless(name);
  return '[' + text + ']';
}

DDPXX_INLINE void check_metric_names(const std::vector<std::string>& names) {
  // The keys of a row of the metrics file.
  constexpr std::array<std::string_view, 23> kTaken{"step",
                                                    "time",
                                                    "elapsed",
                                                    "epoch",
                                                    "loss",
                                                    "grad_norm",
                                                    "lr",
                                                    "samples",
                                                    "tokens",
                                                    "tokens_per_second",
                                                    "step_ms",
                                                    "data_ms",
                                                    "peak_memory_bytes",
                                                    "state_bytes",
                                                    "loss_scale",
                                                    "skipped_steps",
                                                    "gpu_allocated_bytes",
                                                    "gpu_reserved_bytes",
                                                    "gpu_peak_bytes",
                                                    "gpu_retries",
                                                    "slowest_rank",
                                                    "slowest_rank_ms",
                                                    "median_rank_ms"};
  const auto refuse = [](const std::string& name, const std::string& why) {
    throw Error{Errc::config, "the model returned a metric named '" + harmless(name) + "', " + why};
  };
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) refuse(*name, "which is empty: give it a name");
    if (find_malformed_utf8(*name) != std::string_view::npos) refuse(*name, "which is not UTF-8: write it in UTF-8");
    if (std::ranges::any_of(*name,
                            [](unsigned char c) { return c < ' ' || c == 0x7f || c == ',' || c == '"' || c == '\\'; }))
      refuse(*name, "which has a comma, a quotation mark, a backslash or a control character: leave them out");
    if (std::string_view{"=+-@"}.find(name->front()) != std::string_view::npos)
      refuse(*name, "which a spreadsheet may compute as a formula: begin it with another character");
    if (std::ranges::find(kTaken, *name) != kTaken.end() || name->starts_with("val_"))
      refuse(*name, "which is the name of another number in rows of metrics: choose another one");
    if (std::find(names.begin(), name, *name) != name) refuse(*name, "twice: choose two names");
  }
}

}  // namespace detail

DDPXX_INLINE std::vector<NamedSum> join_metrics(std::span<std::vector<NamedSum>> parts) {
  if (parts.empty()) return {};
  auto whole = std::move(parts.front());
  const auto check = [](const NamedSum& metric) {
    if (!metric.sum.defined() || metric.sum.dim() != 0 || (metric.count.defined() && metric.count.dim() != 0))
      throw Error{Errc::config, "the metric " + harmless(metric.name) +
                                    " of the model needs a sum over the batch as a 0-dim tensor, and a count, if it "
                                    "has one, as another: write for example x.sum()"};
  };
  std::ranges::for_each(whole, check);
  for (const auto& part : parts.subspan(1)) {
    std::ranges::for_each(part, check);
    if (!std::ranges::equal(part, whole, [](const auto& a, const auto& b) {
          return a.name == b.name && a.count.defined() == b.count.defined();
        }))
      throw Error{Errc::config, "the model returned the metrics " + detail::names_text(detail::names_of(whole)) +
                                    " for one part of a batch, but " + detail::names_text(detail::names_of(part)) +
                                    " for another: return the same names in the same order, each always with or always "
                                    "without a count"};
    for (std::size_t i = 0; i < whole.size(); ++i) {
      whole[i].sum = whole[i].sum.detach() + part[i].sum.detach().to(whole[i].sum.device());
      if (whole[i].count.defined()) whole[i].count = whole[i].count + part[i].count.to(whole[i].count.device());
    }
  }
  return whole;
}

DDPXX_INLINE void check_same_metrics(const std::vector<std::string>& names, const Group& group) {
  std::string mine;
  for (const auto& name : names) mine += name + '\n';
  const auto all = all_gather_text(mine, group);
  if (std::ranges::all_of(all, [&](const auto& text) { return text == all.front(); })) return;
  std::vector<std::string> shown;
  for (const auto& text : all) {
    std::vector<std::string> own;
    std::istringstream lines{text};
    for (std::string name; std::getline(lines, name);) own.push_back(name);
    shown.push_back(detail::names_text(own));
  }
  throw Error{Errc::peer, "the model returned different metrics on different ranks: " + detail::by_value(shown) +
                              "; return the same names in the same order on every rank"};
}

}  // namespace ddpxx
