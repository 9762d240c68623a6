// ddpxx/config/check_config.hpp — checks a config that was set in code by the rules of parse_config: ranges and choices
// from describe(), and the rules between fields from check().
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// The errors of a config; `path` is put before the name of each field. If the struct is not a config, as with a field
/// that cannot be read from a file, its check() is called or, if it has none, its fields are checked one by one.
template <class Config>
std::vector<FieldError> config_errors(const Config& config, std::string_view path = "");

/// Throws if there are errors.
/// Errors  `config`, with one line for each of them.
void throw_config_errors(const std::vector<FieldError>& errors);

/// Throws if the config has errors.
/// Errors  `config`, with one line for each of them.
template <class Config>
void check_config(const Config& config) {
  throw_config_errors(config_errors(config));
}

namespace detail {

/// Adds the errors of a check(), without its warnings.
void add_rules(std::vector<FieldError>& errors, std::vector<FieldError> found, std::string_view path);

/// The errors that the table finds. Rules between fields are not checked if one of the fields has an invalid value.
std::vector<FieldError> errors_by_table(const ConfigTable& table, const void* config, std::string_view path);

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

#ifndef DDPXX_CORE
#include <ddpxx/config/check_config_inl.hpp>
#endif
