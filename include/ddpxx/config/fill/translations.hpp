// ddpxx/config/fill/translations.hpp — the values that aliases have translated, to be reported at the end.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/fill/diagnostics.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// The translated values that are in force, by the setting's index in the table and the key in a map.
class Translations {
 public:
  using MapKey = std::optional<std::string>;

  /// Remembers a translation, which has a problem or a notice. `source_entry` must outlive this object.
  void keep(std::size_t index, const MapKey& entry, const SourceEntry& source_entry, Translation translation) {
    in_force_.insert_or_assign({index, entry}, Translated{&source_entry, std::move(translation)});
  }

  void forget(std::size_t index, const MapKey& entry) { in_force_.erase({index, entry}); }

  /// Forgets the setting, and if it is a map all its entries.
  void forget(std::size_t index) {
    std::erase_if(in_force_, [&](const auto& translated) { return translated.first.first == index; });
  }

  /// Adds the problems and notices of the translations.
  void report(const ConfigTable& table, Diagnostics& diagnostics) const {
    for (const auto& [key, translated] : in_force_) {
      const auto& [source_entry, translation] = translated;
      if (!translation.problem.empty())
        diagnostics.complain({source_entry->value.place, source_entry->path, translation.problem},
                             table.rows[key.first].path);
      else
        diagnostics.notices.push_back({source_entry->value.place, source_entry->path, translation.notice});
    }
  }

 private:
  struct Translated {
    const SourceEntry* source_entry;
    Translation translation;
  };

  std::map<std::pair<std::size_t, MapKey>, Translated> in_force_;
};

}  // namespace ddpxx::detail
