// ddpxx/config/part_settings.hpp — the values of a config that was set in code, as settings to compare.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Every value of a struct, as its config prints it; `path` is put before the name of each field. If the struct is not
/// a config, as with a field that cannot be read from a file, only fields that can be printed are included, with enums
/// without names as numbers. Functions, and all fields of a class with a constructor, are not included or compared.
template <class Part>
Settings part_settings(const Part& part, std::string_view path) {
  Settings settings;
  if constexpr (detail::is_config_tree<Part>()) {
    settings = settings_of(part);
    for (auto& setting : settings) setting.path = path_in(path, setting.path);
  } else if constexpr (detail::is_reflected<Part>()) {
    boost::pfr::for_each_field_with_name(part, [&](std::string_view name, const auto& field) {
      using Field = std::remove_cvref_t<decltype(field)>;
      if constexpr (ConfigLeaf<Field>)
        settings.push_back({path_in(path, name), ConfigCodec<Field>::print(field)});
      else if constexpr (std::is_enum_v<Field>)
        settings.push_back({path_in(path, name), ConfigCodec<std::int64_t>::print(static_cast<std::int64_t>(field))});
      else if constexpr (std::is_class_v<Field>)
        for (auto& setting : part_settings(field, path_in(path, name))) settings.push_back(std::move(setting));
    });
  }
  return settings;
}

}  // namespace ddpxx
