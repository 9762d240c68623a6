#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/print.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/setting.hpp>

#include "filled.hpp"

namespace ddpxx::print_test {
namespace {

using namespace detail;

enum class Color { red, green };
constexpr auto enum_names(Color) { return std::array{Named{Color::red, "no"}, Named{Color::green, "green"}}; }

struct Deep {
  std::optional<std::string> name;
  std::vector<std::string> texts;
  std::array<float, 3> floats{};
  bool operator==(const Deep&) const = default;
};
struct Group {
  Deep deep;
  std::int64_t number = 0;
  std::vector<std::int64_t> numbers;
  bool operator==(const Group&) const = default;
};
struct Small {
  std::vector<std::string> texts;
  bool operator==(const Small&) const = default;
};
struct All {
  bool flag = false;
  std::int8_t tiny = 0;
  std::uint64_t large = 0;
  double real = 0;
  double limit = 1;
  float small_real = 0;
  std::string text;
  std::filesystem::path path;
  Color color = Color::red;
  Group group;
  std::optional<double> maybe;
  std::vector<std::vector<double>> table;
  std::optional<std::vector<bool>> flags;
  std::int64_t bytes = 0;
  double seconds = 0;
  std::chrono::milliseconds pause{0};
  std::optional<std::chrono::hours> patience;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::vector<double>> curves;
  std::variant<Small, Group> kind;
  bool operator==(const All&) const = default;

  static constexpr auto describe() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return fields(field<&All::kind>("", choices("small", "group")), field<&All::bytes>("", Unit::bytes),
                  field<&All::seconds>("", Unit::seconds, Resume::free),
                  field<&All::limit>("", at_least(-kInfinity), at_most(kInfinity)));
  }
};

/// Random values, many of them edge cases.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_{seed} {}

  std::size_t below(std::size_t end) { return engine_() % end; }
  bool flip() { return below(2) == 0; }

  template <class T>
  T integer() {
    constexpr std::array kEdges{std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1}};
    return flip() ? kEdges[below(kEdges.size())] : static_cast<T>(engine_());
  }

  template <class T>
  T finite() {
    constexpr std::array kEdges{
        std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max(), T{-0.0}, T(0.1), T(1e15), T(1e-5)};
    if (flip()) return kEdges[below(kEdges.size())];
    for (;;) {
      const auto bits = engine_();
      const T value = sizeof(T) == 8 ? static_cast<T>(std::bit_cast<double>(bits))
                                     : static_cast<T>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      if (std::isfinite(value)) return value;
    }
  }

  std::string text() {
    static const std::array<std::string, 35> kPieces{"a",
                                                     "${",
                                                     "\\",
                                                     "${text}",
                                                     "Z",
                                                     " ",
                                                     "  ",
                                                     ":",
                                                     ": ",
                                                     "#",
                                                     " #",
                                                     "\"",
                                                     "'",
                                                     "\\",
                                                     "\n",
                                                     "\t",
                                                     "\r",
                                                     "\x01",
                                                     "\x7F",
                                                     "[",
                                                     "{",
                                                     "- ",
                                                     "null",
                                                     "yes",
                                                     "1e3",
                                                     "\xC3\xA9",
                                                     "\xC2\x85",
                                                     "\xE2\x80\xA8",
                                                     "\xEF\xBB\xBF",
                                                     "\xEF\xBF\xBF",
                                                     "\xF0\x9F\x98\x80",
                                                     "&x",
                                                     "*x",
                                                     "---",
                                                     "\x01"};
    std::string result;
    for (std::size_t count = below(8); count > 0; --count) result += kPieces[below(kPieces.size())];
    return result;
  }

  template <class Make>
  auto list(Make make) {
    std::vector<decltype(make())> items;
    for (std::size_t count = below(4); count > 0; --count) items.push_back(make());
    return items;
  }

 private:
  std::mt19937_64 engine_;
};

All random_config(Dice& dice) {
  All all;
  all.flag = dice.flip();
  all.tiny = dice.integer<std::int8_t>();
  all.large = dice.integer<std::uint64_t>();
  all.real = dice.finite<double>();
  all.limit = dice.flip() ? std::copysign(std::numeric_limits<double>::infinity(), dice.flip() ? 1.0 : -1.0) : 2.0;
  all.small_real = dice.finite<float>();
  all.text = dice.text();
  all.path = dice.text();
  all.color = dice.flip() ? Color::red : Color::green;
  if (dice.flip()) all.group.deep.name = dice.text();
  all.group.deep.texts = dice.list([&] { return dice.text(); });
  for (float& value : all.group.deep.floats) value = dice.finite<float>();
  all.group.number = dice.integer<std::int64_t>();
  all.group.numbers = dice.list([&] { return dice.integer<std::int64_t>(); });
  if (dice.flip()) all.maybe = dice.finite<double>();
  all.table = dice.list([&] { return dice.list([&] { return dice.finite<double>(); }); });
  if (dice.flip()) all.flags = dice.list([&] { return dice.flip(); });
  all.bytes = dice.integer<std::int64_t>();
  all.seconds = dice.finite<double>();
  all.pause = std::chrono::milliseconds{static_cast<std::int64_t>(dice.below(1'000'000'000)) - 1000};
  if (dice.flip()) all.patience = std::chrono::hours{dice.below(1000)};
  for (auto& text : dice.list([&] { return dice.text(); })) all.labels[text] = dice.text();
  for (auto& text : dice.list([&] { return dice.text(); }))
    all.curves[text] = dice.list([&] { return dice.finite<double>(); });
  if (dice.flip()) all.kind = std::exchange(all.group, {});
  return all;
}

TEST(PrintedYaml, ReadsBackEqual) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Dice dice{seed};
    const auto config = random_config(dice);
    const auto yaml = print_yaml(config);
    const auto filled = fill<All>(yaml);
    ASSERT_EQ(filled.problems, "") << "seed " << seed << '\n' << yaml;
    ASSERT_TRUE(filled.config == config) << "seed " << seed << '\n'
                                         << yaml << "\nread back as\n"
                                         << print_yaml(filled.config);
    ASSERT_EQ(print_yaml(filled.config), yaml);  // this comparison tells -0 from 0
  }
}

TEST(PrintedYaml, IsIndentedByGroup) {
  All all;
  all.text = "yes";
  all.maybe = 3e-4;
  EXPECT_EQ(print_yaml(all),
            "flag: false\ntiny: 0\nlarge: 0\nreal: 0.0\nlimit: 1.0\nsmall_real: 0.0\ntext: \"yes\"\npath: \"\"\n"
            "color: \"no\"\ngroup:\n  deep:\n    name: null\n    texts: []\n    floats: [0.0, 0.0, 0.0]\n  number: 0\n"
            "  numbers: []\nmaybe: 0.0003\ntable: []\nflags: null\nbytes: 0\nseconds: 0.0\npause: \"0s\"\n"
            "patience: null\nlabels: {}\ncurves: {}\nkind:\n  name: \"small\"\n  texts: []\n");
}

struct A {
  int x = 1;
};
struct B {
  A first;
  A second;
  A third;
};
struct C {
  B b;
  A c;
};

TEST(PrintedYaml, ClosesGroupsBeforeTheNext) {
  EXPECT_EQ(print_yaml(C{}), "b:\n  first:\n    x: 1\n  second:\n    x: 1\n  third:\n    x: 1\nc:\n  x: 1\n");
}

TEST(PrintedTexts, MarkMalformedBytes) {
  All all;
  all.text =
      "a\xFF"
      "b";
  EXPECT_NE(print_yaml(all).find("text: \"a\\uFFFDb\"\n"), std::string::npos);
}

TEST(SettingsOfAConfig, HaveEveryValueWithItsPolicy) {
  All all;
  all.group.deep.texts = {"a", "b"};
  const Settings settings = settings_of(all);
  const auto& rows = table_of<All>().rows;
  const auto is_active = [&](const ConfigRow& row) { return table_of<All>().is_active(row, &all); };
  ASSERT_EQ(settings.size(), std::ranges::count_if(rows, is_active));
  EXPECT_EQ(settings[10].path, "group.deep.texts");
  EXPECT_EQ(settings[10].value, "[\"a\", \"b\"]");
  EXPECT_EQ(settings[10].resume, Resume::warn);
  const auto seconds = std::ranges::find(settings, "seconds", &Setting::path);
  ASSERT_NE(seconds, settings.end());
  EXPECT_EQ(seconds->resume, Resume::free);
}

}  // namespace
}  // namespace ddpxx::print_test
