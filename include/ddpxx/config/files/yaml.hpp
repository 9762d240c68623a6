// ddpxx/config/files/yaml.hpp — reads the entries of a YAML file, with the position of every key and value.
#pragma once

#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/document_flattener.hpp>
#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/files/yaml_text.hpp>
#include <ddpxx/config/files/yaml_tree.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// The entries of a YAML text. `source` gets its lines.
inline SourceEntries read_yaml(std::string_view text, std::shared_ptr<ConfigSource> source) {
  const DocumentText yaml{text, std::move(source)};
  if (const auto problem = yaml.problem_in_bytes()) return {.source = yaml.source(), .problems = {*problem}};
  YamlTree handler;
  const auto refused = [&](const TextMark& mark, std::string_view why) {
    return SourceEntries{.source = yaml.source(),
                         .problems = {yaml_problem_of(yaml, mark, why, handler.tree().open_bracket())}};
  };
  try {
    std::istringstream stream{yaml.text()};
    YAML::Parser parser{stream};
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const YAML::ParserException& refusal) {
    return refused(mark_of(refusal.mark), refusal.msg);
  } catch (const DocumentRefusal& refusal) {
    return refused(refusal.mark(), refusal.what());
  }
  if (handler.tree().root() == nullptr) return {.source = yaml.source()};
  const auto check = [&yaml](const auto& node, const auto& at) { return yaml_problem_at(yaml, node, at); };
  return DocumentFlattener{yaml, check}.flatten(
      *handler.tree().root(), "a configuration has lines `key: value` (is the space after the colon missing?)");
}

/// The entries of a YAML text. `name` is used in messages; `order` is the file's order among the sources.
inline SourceEntries read_yaml_text(std::string_view text, std::string name, std::size_t order) {
  return read_yaml(text, std::make_shared<ConfigSource>(ConfigSource{.order = order, .name = std::move(name)}));
}

}  // namespace ddpxx::detail
