// findings.hpp — what the checks of `ddpxx doctor` have found, a line for each check.
#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

/// The result of one check.
struct Finding {
  enum class Verdict { ok, warning, failed, skipped };

  Verdict verdict = Verdict::ok;
  std::string text = {};                   ///< What was found.
  std::string advice = {};                 ///< What to do; empty for nothing.
  ddpxx::Errc code = ddpxx::Errc::config;  ///< The exit code, if `verdict` is failed.

  static Finding ok(std::string text) { return {Verdict::ok, std::move(text)}; }
  static Finding skipped(std::string text) { return {Verdict::skipped, std::move(text)}; }
  static Finding warning(std::string text, std::string advice) {
    return {Verdict::warning, std::move(text), std::move(advice)};
  }
  static Finding failed(ddpxx::Errc code, std::string text, std::string advice = {}) {
    return {Verdict::failed, std::move(text), std::move(advice), code};
  }
};

/// Runs checks one after the other and prints a line for each.
class Findings {
 public:
  /// `prefix` begins each line, and names the host where there are several.
  explicit Findings(std::string prefix) : prefix_{std::move(prefix)} {}

  /// Runs a check; an error that it throws is a failure. Where `shown` is false, only a failure is printed.
  void check(const std::string& name, const std::function<Finding()>& body, bool shown = true) {
    Finding finding;
    try {
      finding = body();
    } catch (const std::exception& cause) {
      const auto error = ddpxx::as_error(cause, ddpxx::Errc::config);
      finding = Finding::failed(error.code(), error.what());
    }
    if (finding.verdict == Finding::Verdict::failed && code_ == 0) code_ = static_cast<int>(finding.code);
    if (finding.verdict != Finding::Verdict::failed && !shown) return;
    const std::string verdict = finding.verdict == Finding::Verdict::ok        ? "ok       "
                                : finding.verdict == Finding::Verdict::warning ? "warning  "
                                : finding.verdict == Finding::Verdict::failed  ? "failed   "
                                                                               : "skipped  ";
    std::cout << ddpxx::harmless(prefix_ + verdict + name + ": " + finding.text +
                                 (finding.advice.empty() ? "" : "; " + finding.advice))
              << std::endl;
  }

  /// The exit code of the first check that failed; 0 for none.
  int code() const noexcept { return code_; }

 private:
  std::string prefix_;
  int code_ = 0;
};
