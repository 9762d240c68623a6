// config_reference — prints docs/config.md with new tables: the text before the mark stays, the tables behind it are
// generated.
//
//   config_reference docs/config.md    prints the file as it should be
//
// The settings are those of the sample. `./dev docs` runs this program, and a test fails if the file is not up to date.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/setting.hpp>

#include "../samples/mingpt/run_config.hpp"

namespace {

using ddpxx::ConfigRow;
using ddpxx::ConfigTable;

constexpr std::string_view kMark = "<!-- What follows is written by tools/config_reference.cpp: ./dev docs -->\n";

/// The text as a cell of a table, with bars escaped, because a bar would end the cell.
std::string cell(std::string text) {
  for (auto at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, 1, '\\');
  return text;
}

std::string code(std::string_view text) { return '`' + cell(std::string{text}) + '`'; }

std::string_view on_resume(ddpxx::Resume resume) {
  switch (resume) {
    case ddpxx::Resume::must_match:
      return "must match";
    case ddpxx::Resume::warn:
      return "warns";
    case ddpxx::Resume::free:
      return "free";
  }
  return "";
}

/// The group of a row; for keys of a variant with the alternative that has them.
std::string heading_of(const ConfigTable& table, const ConfigRow& row) {
  const auto group = ddpxx::group_of(row.path);
  if (group.empty()) return "At the top level";
  auto heading = code(group);
  if (row.place.variant != ddpxx::FieldPlace::kRoot) {
    const auto& variant = table.variants[row.place.variant];
    heading += " with " + code(variant.path + '=' + variant.names[row.place.alternative]);
  }
  return heading;
}

std::string row_text(const ConfigRow& row, std::string_view default_value) {
  return "| " + code(row.path) + " | " + (row.facts.is_secret ? "a secret" : code(default_value)) + " | " +
         cell(std::string{row.facts.help}) + " | " + cell(ddpxx::accepted_values(row)) + " | " +
         std::string{on_resume(row.resume)} + " |\n";
}

/// The keys at the top level, wherever they are declared, and then the groups.
std::string settings_text(const ConfigTable& table) {
  const auto is_grouped = [](const ConfigRow& row) { return !ddpxx::group_of(row.path).empty(); };
  std::vector<const ConfigRow*> rows;
  for (const auto& row : table.rows) rows.push_back(&row);
  std::ranges::stable_sort(rows, {}, [&](const ConfigRow* row) { return is_grouped(*row); });
  std::string text, heading;
  for (const auto* row : rows) {
    if (auto now = heading_of(table, *row); now != heading) {
      heading = std::move(now);
      text += "\n### " + heading + "\n\n";
      const auto* group = table.find_group(ddpxx::group_of(row->path));
      if (group != nullptr && !group->help.empty()) text += std::string{group->help} + ".\n\n";
      text += "| key | default | meaning | takes | when a run is resumed |\n|---|---|---|---|---|\n";
    }
    text += row_text(*row, table.print_default(*row));
  }
  return text;
}

std::string other_names_text(const ConfigTable& table) {
  std::string text;
  if (!table.aliases.empty()) text += "\n### Other names\n\n| written | means |\n|---|---|\n";
  for (const auto& alias : table.aliases) text += "| " + code(alias.key) + " | " + code(alias.leads_to) + " |\n";
  if (!table.moved.empty()) text += "\n### Former names\n\n| was | is |\n|---|---|\n";
  for (const auto& moved : table.moved) text += "| " + code(moved.key) + " | " + code(moved.leads_to) + " |\n";
  if (!table.ignored.empty()) text += "\n### Accepted and not applied\n\n| key | why |\n|---|---|\n";
  for (const auto& ignored : table.ignored) {
    const std::vector<std::string> only(ignored.only.names.begin(), ignored.only.names.begin() + ignored.only.count);
    const auto key = std::string{ignored.key} + (only.empty() ? "" : '=' + ddpxx::one_of(only));
    text += "| " + code(key) + " | " + cell(std::string{ignored.reason}) + " |\n";
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: config_reference FILE\n";
    return static_cast<int>(ddpxx::Errc::config);
  }
  const auto page = ddpxx::read_file(argv[1], ddpxx::Errc::config);
  const auto mark = page.find(kMark);
  if (mark == std::string::npos)
    throw ddpxx::Error{ddpxx::Errc::config,
                       std::string{argv[1]} + ": the line `" + std::string{kMark} + "` is missing"};
  const auto& table = ddpxx::table_of<RunConfig>();
  std::cout << page.substr(0, mark + kMark.size()) << settings_text(table) << other_names_text(table);
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::cerr << "config_reference: " << error.what() << '\n';
  return EXIT_FAILURE;
}
