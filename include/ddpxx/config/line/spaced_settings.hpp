// ddpxx/config/line/spaced_settings.hpp — recognises settings that are written `key value` or `key = value`, and
// refuses each as one problem that does not show the value of a secret.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <ddpxx/config/line/argument_cursor.hpp>
#include <ddpxx/config/line/ignored_key.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx::detail {

/// The settings with a space in place of `=` or around it, at the position of a cursor.
class SpacedSettings {
 public:
  /// Both must outlive this object.
  SpacedSettings(const ConfigTable& table, ArgumentCursor& cursor) : table_{table}, cursor_{cursor} {}

  /// Whether the next argument begins with the `=` of this one.
  bool next_begins_with_equals() const { return cursor_.has_next() && cursor_.next().starts_with('='); }

  /// Refuses `key = value`, as one problem about all three arguments.
  void refuse_spaces() {
    const auto start = cursor_.index();
    cursor_.advance();
    const bool has_value = cursor_.argument() == "=" && cursor_.has_next();
    cursor_.join_to(start);
    if (has_value) {
      cursor_.advance();
      cursor_.join_to(start);
    }
    cursor_.complain(start, "write key=value, without spaces around the =");
  }

  /// Whether this argument is the key of a setting, and the next one looks like its value, as in `batch_size 32` and
  /// `-batch_size 32`. What follows the key of a secret is its value, even with an `=` at its end.
  bool next_is_value() const {
    const auto& argument = cursor_.argument();
    if (!cursor_.has_next() || argument.find(' ') != std::string::npos) return false;
    const auto key = key_of_argument(argument, &table_);
    if (may_be_secret(table_, key)) return meaning_of_next().row == nullptr;
    if (table_.meaning_of(key).row == nullptr || cursor_.next_has_equals()) return false;
    return is_switch(table_, key) ? cursor_.next_is_bool() : !cursor_.next_is_config_file();
  }

  /// Refuses `key value`, as one problem about both arguments.
  void refuse_missing_equals() {
    const auto start = cursor_.index();
    const std::string argument = cursor_.argument();
    const auto key = key_of_argument(argument, &table_);
    const auto value = cursor_.take_next();
    const bool is_secret = may_be_secret(table_, key);
    if (!value && is_secret) expect_secret(start);
    if (value || is_secret)
      return cursor_.complain(start, "write " + harmless(key) + '=' + (is_secret ? "***" : harmless(*value)));
    cursor_.complain(start, std::string{"is not "} + (argument.starts_with('-') ? "an option" : "a setting") +
                                "; settings are written key=value, --help lists them");
  }

  /// Notes that the argument at an index is the key of a secret without a value. An unknown argument behind it that
  /// begins with a dash may be the value, and messages must not show it.
  void expect_secret(std::size_t index) { secret_at_ = index; }
  bool follows_secret() const { return secret_at_ && *secret_at_ + 1 == cursor_.index(); }

  /// Joins this argument to the key of a secret before it, whose problem then shows `***` in its place.
  void hide_with_secret() {
    const auto key = key_of_argument(cursor_.argument(*secret_at_), &table_);
    cursor_.join_to(*secret_at_);
    if (table_.meaning_of(key).kind == KeyMeaning::Kind::ignored)
      cursor_.complain(*secret_at_, "write " + harmless(key) + "=***");  // the key alone is no problem
  }

  /// Whether the next argument sets no known key, so that an `=` in it may be a part of a secret.
  bool next_is_unknown() const { return meaning_of_next().kind == KeyMeaning::Kind::unknown; }

 private:
  KeyMeaning meaning_of_next() const {
    const auto& next = cursor_.next();
    return table_.meaning_of(next.substr(0, next.find('=')));
  }

  const ConfigTable& table_;
  ArgumentCursor& cursor_;
  std::optional<std::size_t> secret_at_;
};

}  // namespace ddpxx::detail
