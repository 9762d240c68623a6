// ddpxx/config/alias.hpp — what a root config says about keys that are not its own.
#pragma once

#include <string>
#include <string_view>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// What a value that is written for an alias is where the alias leads, or why it has no place there; `notice` is said
/// where it is taken. With `keeps_earlier` the value is taken only if no earlier source has set the setting.
struct Translation {
  std::string value{};
  std::string problem{};
  std::string notice{};
  bool keeps_earlier = false;
};

/// Another spelling of a key or of a whole group: `Alias{"gpt_config", "model"}`; a root config lists them in
/// `static constexpr auto aliases()`. The most specific one wins; what it leads to may be an alias again. `translate`
/// is for a value that means something else: `Alias{"decay_lr", "optimizer.schedule", schedule_of}`.
struct Alias {
  std::string_view key;
  std::string_view leads_to;
  Translation (*translate)(std::string_view value) = nullptr;
};

/// What another program sets where a config file of its own says nothing: lies beneath all files as soon as one of them
/// is a Python file. A root config gives it as `static constexpr FileDefaults python_defaults()`.
struct FileDefaults {
  std::string_view name;    ///< As messages show it.
  std::string_view yaml;    ///< In the keys of the config, or in aliases.
  std::string_view notice;  ///< What is said of each Python file.
};

/// A key or group that is accepted and not applied, with one notice that says why; a root config lists them in
/// `static constexpr auto ignored()`. Where `only` names values, they are what happens anyway, and others are refused:
/// `Ignored{"bias", "every layer has one", choices("true")}`.
struct Ignored {
  std::string_view key;
  std::string_view reason;
  Choices only{};
};

}  // namespace ddpxx
