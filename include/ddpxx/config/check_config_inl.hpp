// ddpxx/config/check_config_inl.hpp — the functions of check_config.hpp that are not templates.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/check_config.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE void throw_config_errors(const std::vector<FieldError>& errors) {
  std::string text;
  for (const auto& [field, why, severity] : errors)
    if (severity == Severity::error) text += (text.empty() ? "" : "\n") + field + (field.empty() ? "" : ": ") + why;
  if (!text.empty()) throw Error{Errc::config, text};
}

namespace detail {

DDPXX_INLINE void add_rules(std::vector<FieldError>& errors, std::vector<FieldError> found, std::string_view path) {
  for (auto& error : found) {
    if (error.severity != Severity::error) continue;
    error.field = error.field.empty() ? std::string{path} : path_in(path, error.field);
    errors.push_back(std::move(error));
  }
}

DDPXX_INLINE std::vector<FieldError> errors_by_table(const ConfigTable& table, const void* config,
                                                     std::string_view path) {
  std::vector<FieldError> errors;
  std::vector<std::string> invalid;
  for (const auto& row : table.rows) {
    if (row.type->fault == nullptr || !table.is_active(row, config)) continue;
    auto fault = row.type->fault(table.field(row, config), row.facts);
    if (fault.empty()) continue;
    if (row.facts.is_secret) fault = "the value of this secret is not taken";
    errors.push_back({path_in(path, row.path), std::move(fault)});
    invalid.push_back(row.path);
  }
  add_rules(errors, table.broken_rules(config, invalid), path);
  return errors;
}

}  // namespace detail

}  // namespace ddpxx
