// ddpxx/config/alias.hpp — what a root config says about keys that are not its own.
#pragma once

#include <string>
#include <string_view>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// The result of translating a value that was given for an alias: the value for the setting that the alias leads to
/// (`value`), or the reason why there is none (`problem`). `notice` is logged when the value is used. With
/// `keeps_earlier` the value is used only if no earlier source has set the setting.
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

/// Defaults of the program whose Python config files are read, as YAML. They apply, below the values of all files, if
/// at least one of the files is a Python file. A root config gives them as `static constexpr FileDefaults
/// python_defaults()`.
struct FileDefaults {
  std::string_view name;    ///< As messages show it.
  std::string_view yaml;    ///< In the keys of the config, or in aliases.
  std::string_view notice;  ///< What is said of each Python file.
};

/// A key or group that is accepted and not applied, with one notice that says why; a root config lists them in
/// `static constexpr auto ignored()`. If `only` lists values, these are accepted, since they describe what happens
/// anyway; any other value is an error: `Ignored{"bias", "every layer has one", choices("true")}`.
struct Ignored {
  std::string_view key;
  std::string_view reason;
  Choices only{};
};

}  // namespace ddpxx
