// ddpxx/config/show/schema.hpp — the table of a config as a JSON Schema, by which editors complete, explain and check.
//
// It is of draft 7, the newest that yaml-language-server reads. The schema accepts what the parser accepts, and in
// general nothing else. The parser alone checks what a schema cannot express: rules between fields, one setting under
// two names, duplicate keys, and the meaning of texts (schema_value.hpp). A key with dots is checked up to its first
// dot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/config/line/ignored_key.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/show/print_json.hpp>
#include <ddpxx/config/show/schema_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

/// The schema as text.
inline std::string json_schema(const ConfigTable& table, std::string_view title);

/// Makes the schema. Functions take a path as the user writes it, which may contain aliases, and the canonical path. A
/// scope is the alternative of a variant that contains a field, as a place without an offset.
class SchemaWriter {
 public:
  using Json = nlohmann::ordered_json;

  explicit SchemaWriter(const ConfigTable& table) : table_{table} {}

  std::string write(std::string_view title) const {
    Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", title}};
    schema.update(group_object("", "", {}));
    auto& properties = schema["properties"];
    std::string groups;
    for (const auto& [name, property] : properties.items())
      if (leads_to_group(name)) groups += (groups.empty() ? "" : "|") + name;
    if (!groups.empty()) schema["patternProperties"] = {{"^(?:" + groups + ")\\.", Json::object()}};
    if (!properties.contains("include"))
      properties["include"] = {{"description", "Further files, relative to this one, which this one overrides"},
                               {"type", {"string", "array"}},
                               {"items", {{"type", "string"}}}};
    auto& definitions = schema["definitions"] = Json::object();
    for (const auto& group : table_.groups) {
      if (group.place.variant != FieldPlace::kRoot || group.path.empty() || group.is_flattened) continue;
      const auto* variant = find_variant(group.path, {});
      definitions[group.path] =
          variant != nullptr ? variant_schema(*variant, group.path) : group_schema(group, group.path);
    }
    return schema.dump(2) + '\n';
  }

 private:
  static bool is_same_scope(const FieldPlace& a, const FieldPlace& b) {
    return a.variant == b.variant && (a.variant == FieldPlace::kRoot || a.alternative == b.alternative);
  }

  const ConfigVariant* find_variant(std::string_view path, const FieldPlace& scope) const {
    for (const auto& variant : table_.variants)
      if (variant.path == path && is_same_scope(variant.place, scope)) return &variant;
    return nullptr;
  }
  const ConfigGroup* find_group(std::string_view path, const FieldPlace& scope) const {
    for (const auto& group : table_.groups)
      if (group.path == path && is_same_scope(group.place, scope)) return &group;
    return nullptr;
  }
  std::vector<const ConfigRow*> find_rows(std::string_view path, const FieldPlace& scope) const {
    std::vector<const ConfigRow*> rows;
    for (const auto& row : table_.rows)
      if (row.path == path && !row.chooses && is_same_scope(row.place, scope)) rows.push_back(&row);
    return rows;
  }

  /// The names of a group: as written, after each alias that is followed, and its own name.
  std::vector<std::string> names_of_group(std::string path) const {
    std::vector<std::string> forms{path};
    for (std::size_t turn = 0; turn < table_.aliases.size(); ++turn) {
      const auto* alias = ConfigTable::most_specific(table_.aliases, path);
      if (alias == nullptr) break;
      path.replace(0, alias->key.size(), alias->leads_to);
      forms.push_back(path);
    }
    return forms;
  }

  /// The names that may be written directly in a group. Some of them may lead to no setting.
  std::vector<std::string> names_in(const std::string& written) const {
    std::vector<std::string> names;
    for (const auto& form : names_of_group(written)) {
      for (const auto& row : table_.rows) add_name_below(names, form, row.path);
      for (const auto& alias : table_.aliases) add_name_below(names, form, alias.key);
      for (const auto& ignored : table_.ignored) add_name_below(names, form, ignored.key);
    }
    return names;
  }

  /// True for an alias of a group that accepts other keys than the group itself.
  bool has_own_keys(const std::string& written) const {
    auto forms = names_of_group(written);
    forms.pop_back();
    return std::ranges::any_of(forms, [&](const std::string& form) {
      const auto lies_below = [&](const auto& entry) { return entry.key != form && lies_in(entry.key, form); };
      return std::ranges::any_of(table_.aliases, lies_below) || std::ranges::any_of(table_.ignored, lies_below);
    });
  }

  bool leads_to_group(const std::string& name) const {
    const auto meaning = table_.meaning_of(name);
    return meaning.row == nullptr || meaning.row->type->is_map();
  }

  /// The schema of a group with its keys: of a struct, of a variant's alternative, or of aliases only.
  Json group_object(const std::string& written, const std::string& path, const FieldPlace& scope) const {
    auto properties = Json::object();
    for (const auto& name : names_in(written)) {
      auto property = property_of(path_in(written, name), scope);
      if (property.is_null()) continue;
      if (path_in(path, name) != table_.meaning_of(path_in(written, name)).path) property["doNotSuggest"] = true;
      properties[name] = std::move(property);
      const auto list = name.substr(0, name.find('['));
      const auto count = list == name ? 0 : count_of_several(table_, path_in(written, list));
      if (count > 0) properties[list] = list_of_several(path_in(written, list), count, scope);
    }
    return {{"type", {"object", "null"}}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  }

  /// The schema of a key; null if no value may be written there.
  Json property_of(const std::string& written, const FieldPlace& scope) const {
    const auto meaning = table_.meaning_of(written);
    if (meaning.kind == KeyMeaning::Kind::ignored) return ignored_schema(meaning);
    if (meaning.kind == KeyMeaning::Kind::unknown) return group_of_aliases(written, scope);
    if (takes_truth(meaning)) return truth_schema(meaning);
    const auto own = schema_in(scope, written, meaning.path);
    if (!own.is_null() || scope.variant == FieldPlace::kRoot)
      return own.is_null() ? schema_anywhere(meaning.path) : own;
    // The name leads out of the alternative.
    return written == meaning.path ? own : schema_in({}, written, meaning.path);
  }

  /// True for an alias that translates true and false, and refuses other values.
  static bool takes_truth(const KeyMeaning& meaning) {
    const auto takes = [&](std::string_view value) { return meaning.translate(value).problem.empty(); };
    return meaning.translate != nullptr && takes("true") && takes("false") && !takes("?");
  }

  static Json truth_schema(const KeyMeaning& meaning) {
    Json schema{{"description", "Sets " + meaning.path + " (true or false)"}};
    schema.update(schema_of({.kind = ValueShape::Kind::truth}, {}));
    return schema;
  }

  Json ignored_schema(const KeyMeaning& meaning) const {
    Json schema{{"description", "Is ignored: " + std::string{meaning.reason}}, {"doNotSuggest", true}};
    const auto values = values_of_ignored(table_, meaning);
    if (is_ignored_switch(table_, meaning))
      schema["enum"] = truths_like(values);
    else if (!values.empty())
      schema["enum"] = values;
    return schema;
  }

  /// All ways to write a boolean that one of the texts means.
  static Json truths_like(const std::vector<std::string>& values) {
    auto all = Json::array();
    for (const bool truth : {true, false}) {
      if (std::ranges::none_of(values, [&](const auto& value) { return read_bool(value) == truth; })) continue;
      all.push_back(truth);
      all.push_back(truth ? 1 : 0);
      for (const char* text : {"true",  "True",  "TRUE",  "yes", "Yes", "YES", "on",  "On",  "ON",  "1",
                               "false", "False", "FALSE", "no",  "No",  "NO",  "off", "Off", "OFF", "0"})
        if (read_bool(text) == truth) all.push_back(text);
    }
    return all;
  }

  /// The schema of a key that sets several settings.
  Json list_of_several(const std::string& written, std::size_t count, const FieldPlace& scope) const {
    auto items = Json::array();
    for (std::size_t i = 0; i < count; ++i) items.push_back(property_of(item_key(written, i), scope));
    return {{"type", "array"},
            {"items", std::move(items)},
            {"minItems", count},
            {"maxItems", count},
            {"doNotSuggest", true}};
  }

  /// The schema of a path that is not a group but has aliases below it.
  Json group_of_aliases(const std::string& written, const FieldPlace& scope) const {
    if (names_in(written).empty()) return {};
    auto object = group_object(written, written, scope);
    object["type"] = "object";
    object["minProperties"] = 1;
    object["doNotSuggest"] = true;
    return object;
  }

  Json schema_in(const FieldPlace& scope, const std::string& written, const std::string& path) const {
    constexpr int kMaxDepth = 8;  // an alias may lead to the group around it
    const bool is_plain = !has_own_keys(written) || std::ranges::count(written, '.') > kMaxDepth;
    const auto* group = find_group(path, scope);
    if (group != nullptr && scope.variant == FieldPlace::kRoot && is_plain) return {{"$ref", "#/definitions/" + path}};
    if (const auto* variant = find_variant(path, scope)) return variant_schema(*variant, written);
    if (group != nullptr) return group_schema(*group, written);
    const auto rows = find_rows(path, scope);
    return rows.empty() ? Json{} : row_schema(*rows.front());
  }

  /// The schema of a name that leads into a variant: it accepts what any alternative accepts.
  Json schema_anywhere(const std::string& path) const {
    auto schemas = Json::array();
    for (const auto& row : table_.rows)
      if (row.path == path) schemas.push_back(row_schema(row));
    if (schemas.size() < 2) return schemas.empty() ? Json{} : schemas.front();
    return {{"anyOf", std::move(schemas)}};
  }

  Json row_schema(const ConfigRow& row) const {
    const auto shape = row.type->shape(row.facts);
    Json schema{{"description", explanation(row)}};
    schema.update(schema_of(shape, row.facts));
    if (schema.contains("pattern")) {
      const auto allowed = allowed_text(row.facts);
      schema["patternErrorMessage"] = "Takes " + words_of(shape) + (allowed.empty() ? "" : ", " + allowed);
    }
    if (!row.facts.is_secret) schema["default"] = json_of_yaml(table_.print_default(row));
    return schema;
  }

  /// The schema of a group. A group with a field `name` also accepts that field's value alone: `strategy: fsdp`.
  Json group_schema(const ConfigGroup& group, const std::string& written) const {
    auto object = group_object(written, group.path, group.place);
    const auto names = find_rows(path_in(group.path, "name"), group.place);
    auto schema = Json::object();
    if (!group.help.empty()) schema["description"] = group.help;
    if (names.empty())
      schema.update(object);
    else
      schema["anyOf"] = {std::move(object), row_schema(*names.front())};
    return schema;
  }

  /// The schema of a variant: an alternative for each name; the default one without a name, any one if the name has
  /// `${...}`.
  Json variant_schema(const ConfigVariant& variant, const std::string& written) const {
    const ConfigRow* chooser = nullptr;
    for (const auto& row : table_.rows)
      if (row.chooses && row.path == path_in(variant.path, "name") && is_same_scope(row.place, variant.place))
        chooser = &row;
    auto name = schema_of(chooser->type->shape(chooser->facts), chooser->facts);
    const auto index = chooser->type->index(table_.default_of(*chooser));
    auto branches = Json::array();
    for (std::size_t i = 0; i < variant.names.size(); ++i) {
      const FieldPlace scope{.variant = static_cast<std::size_t>(&variant - table_.variants.data()), .alternative = i};
      auto object = group_object(written, variant.path, scope);
      object["type"] = "object";
      auto names = Json::array();
      add_name(names, variant.names[i]);
      Json properties{{"name", {{"enum", std::move(names)}}}};
      properties.update(object["properties"]);
      object["properties"] = std::move(properties);
      if (i != index) object["required"] = Json::array({"name"});
      branches.push_back(std::move(object));
    }
    const Json reference{{"type", "string"}, {"pattern", kReference}};
    branches.push_back(
        {{"type", "object"}, {"properties", {{"name", reference}}}, {"required", Json::array({"name"})}});
    branches.push_back(std::move(name));
    branches.push_back({{"type", "null"}});
    return {{"description", explanation(*chooser)}, {"oneOf", std::move(branches)}, {"default", variant.names[index]}};
  }

  const ConfigTable& table_;
};

inline std::string json_schema(const ConfigTable& table, std::string_view title) {
  return SchemaWriter{table}.write(title);
}

}  // namespace ddpxx::detail
