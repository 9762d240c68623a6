// ddpxx/config/check_config.hpp — checks a config that was set in code by the rules of parse_config: ranges and choices
// from describe(), and the rules between fields from check().
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/table/config_struct.hpp>
#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// The errors of a config; `path` is put before the name of each field. If the struct is not a config, as with a field
/// that cannot be read from a file, its check() is called or, if it has none, its fields are checked one by one.
template <class Config>
std::vector<FieldError> config_errors(const Config& config, std::string_view path = "");

/// Throws if there are errors.
/// Errors  `config`, with one line for each of them.
inline void throw_config_errors(const std::vector<FieldError>& errors) {
  std::string text;
  for (const auto& [field, why, severity] : errors)
    if (severity == Severity::error) text += (text.empty() ? "" : "\n") + field + (field.empty() ? "" : ": ") + why;
  if (!text.empty()) throw Error{Errc::config, text};
}

/// Throws if the config has errors.
/// Errors  `config`, with one line for each of them.
template <class Config>
void check_config(const Config& config) {
  throw_config_errors(config_errors(config));
}

namespace detail {

inline void add_rules(std::vector<FieldError>& errors, std::vector<FieldError> found, std::string_view path) {
  for (auto& error : found) {
    if (error.severity != Severity::error) continue;
    error.field = error.field.empty() ? std::string{path} : path_in(path, error.field);
    errors.push_back(std::move(error));
  }
}

/// The errors that the table finds. Rules between fields are not checked if one of the fields has an invalid value.
inline std::vector<FieldError> errors_by_table(const ConfigTable& table, const void* config, std::string_view path) {
  std::vector<FieldError> errors;
  std::vector<std::string_view> spoilt;
  for (const auto& row : table.rows) {
    if (row.type->fault == nullptr || !table.is_active(row, config)) continue;
    auto fault = row.type->fault(table.field(row, config), row.facts);
    if (fault.empty()) continue;
    if (row.facts.is_secret) fault = "the value of this secret is not taken";
    errors.push_back({path_in(path, row.path), std::move(fault)});
    spoilt.push_back(row.path);
  }
  for (const auto& group : table.groups) {
    const void* address = table.field(group.place, config);
    const auto is_spoilt = [&](std::string_view field) { return lies_in(field, group.path); };
    if (group.check == nullptr || address == nullptr || std::ranges::any_of(spoilt, is_spoilt)) continue;
    add_rules(errors, group.check(address), group.path.empty() ? std::string{path} : path_in(path, group.path));
  }
  return errors;
}

}  // namespace detail

template <class Config>
std::vector<FieldError> config_errors(const Config& config, std::string_view path) {
  std::vector<FieldError> errors;
  if constexpr (detail::is_config_tree<Config>()) {
    errors = detail::errors_by_table(table_of<Config>(), &config, path);
  } else if constexpr (requires { std::vector<FieldError>{config.check()}; }) {
    detail::add_rules(errors, config.check(), path);
  } else if constexpr (detail::is_reflected<Config>()) {
    boost::pfr::for_each_field_with_name(config, [&](std::string_view name, const auto& field) {
      if constexpr (std::is_class_v<std::remove_cvref_t<decltype(field)>>)
        for (auto& error : config_errors(field, path_in(path, name))) errors.push_back(std::move(error));
    });
  }
  return errors;
}

}  // namespace ddpxx
