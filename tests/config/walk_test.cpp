#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx::walk_test {
namespace {

using namespace detail;

struct Empty {};
struct Inner {
  int a = 1;
  std::string b = "b";
  static constexpr auto describe() {
    return fields(field<&Inner::a>("Help of a", Resume::free), field<&Inner::b>("", resets<&Inner::a>()));
  }
  std::vector<FieldError> check() const { return {}; }
};
struct Outer {
  double first = 1;
  Inner inner{.a = 2};
  Empty empty;
  Inner again;
  std::optional<int> last;
  static constexpr auto describe() {
    return fields(field<&Outer::inner>("Help of inner", Resume::must_match),
                  field<&Outer::last>("", resets<&Outer::inner>()));
  }
};

std::string paths(const ConfigTable& table) {
  std::string text;
  for (const auto& row : table.rows) text += row.path + ' ';
  return text;
}

TEST(TheWalk, NamesEveryValueInOrder) {
  EXPECT_EQ(paths(table_of<Outer>()), "first inner.a inner.b again.a again.b last ");
}

TEST(TheWalk, KnowsTheGroups) {
  const auto& table = table_of<Outer>();
  ASSERT_EQ(table.groups.size(), 4U);
  EXPECT_EQ(table.groups[0].path, "");
  EXPECT_EQ(table.find_group("inner")->help, "Help of inner");
  EXPECT_NE(table.find_group("inner")->check, nullptr);
  EXPECT_EQ(table.find_group("empty")->check, nullptr);
  EXPECT_EQ(table.find_group("nowhere"), nullptr);
}

TEST(TheWalk, TakesDefaultsFromTheRootStruct) {
  const auto& table = table_of<Outer>();
  EXPECT_EQ(table.print(*table.find("inner.a"), table.defaults), "2");
  EXPECT_EQ(table.print(*table.find("again.a"), table.defaults), "1");
}

TEST(TheWalk, FindsFieldsInAnyConfig) {
  const auto& table = table_of<Outer>();
  Outer config;
  config.again.b = "changed";
  EXPECT_EQ(table.print(*table.find("again.b"), &config), "\"changed\"");
  table.reset(*table.find("again.b"), &config);
  EXPECT_EQ(config.again.b, "b");
}

TEST(TheWalk, InheritsTheResumePolicyOfTheGroup) {
  const auto& table = table_of<Outer>();
  EXPECT_EQ(table.find("first")->resume, Resume::warn);
  EXPECT_EQ(table.find("inner.a")->resume, Resume::free);
  EXPECT_EQ(table.find("inner.b")->resume, Resume::must_match);
  EXPECT_EQ(table.find("again.b")->resume, Resume::warn);
}

TEST(TheWalk, NamesWhatIsReset) {
  const auto& table = table_of<Outer>();
  EXPECT_EQ(table.find("inner.b")->resets, std::vector<std::string>{"inner.a"});
  EXPECT_EQ(table.find("again.b")->resets, std::vector<std::string>{"again.a"});
  EXPECT_EQ(table.find("last")->resets, std::vector<std::string>{"inner"});
}

TEST(TheWalk, WorksOnFunctionLocalStructs) {
  struct Local {
    int x = 3;
  };
  EXPECT_EQ(paths(table_of<Local>()), "x ");
}

TEST(TheWalk, IsMadeOnce) { EXPECT_EQ(&table_of<Outer>(), &table_of<Outer>()); }

struct WithCArray {
  int before = 0;
  int numbers[3] = {};
  std::string after;
};
struct WithoutCArray {
  std::string text;
  std::array<double, 2> pair{};
  Inner inner;
  std::vector<int> numbers;
  std::optional<Inner> none;
};
static_assert(detail::has_c_array<WithCArray>());
static_assert(!detail::has_c_array<WithoutCArray>());
static_assert(!detail::has_c_array<Empty>());

struct Long {
  char a[201] = {};
};
static_assert(!detail::has_few_fields<Long>() && detail::has_few_fields<WithoutCArray>());

struct DescribesAnother {
  int a = 0;
  static constexpr auto describe() { return fields(field<&Inner::a>("")); }
};
static_assert(DescribesItself<Inner> && DescribesItself<Empty> && !DescribesItself<DescribesAnother>);

struct ChecksWrongly {
  std::vector<std::string> check() const { return {}; }
};
struct ChecksAndChanges {
  std::vector<FieldError> check() { return {}; }
};
static_assert(ChecksItself<Inner> && ChecksItself<Empty> && !ChecksItself<ChecksWrongly> &&
              !ChecksItself<ChecksAndChanges>);

static_assert(ConfigStruct<Outer> && !ConfigStruct<std::string> && !ConfigStruct<std::array<int, 2>> &&
              !ConfigStruct<int>);
static_assert(ConfigLeaf<std::optional<std::vector<std::string>>> && ConfigLeaf<float> && !ConfigLeaf<char> &&
              !ConfigLeaf<int*> && !ConfigLeaf<Inner>);

struct AliasHidesAField {
  Inner inner;
  static constexpr auto aliases() { return std::array{Alias{"inner", "inner.a"}}; }
};
struct AliasLeadsNowhere {
  Inner inner;
  static constexpr auto aliases() { return std::array{Alias{"old", "iner"}}; }
};
struct AliasesInACircle {
  int a = 0;
  static constexpr auto aliases() { return std::array{Alias{"x", "y"}, Alias{"y", "x"}}; }
};
struct IgnoresAField {
  int a = 0;
  static constexpr auto ignored() { return std::array{Ignored{"a", "no reason"}}; }
};

template <class Config>
std::string refusal() {
  try {
    table_of<Config>();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Aliases, ThatContradictTheFieldsAreRefused) {
  EXPECT_EQ(refusal<AliasHidesAField>(), "aliases(): \"inner\" is the name of a field");
  EXPECT_EQ(refusal<AliasLeadsNowhere>(), "aliases(): \"old\" leads to no field");
  EXPECT_EQ(refusal<AliasesInACircle>(), "aliases(): \"x\" leads to no field");
  EXPECT_EQ(refusal<IgnoresAField>(), "ignored(): \"a\" is the name of a field");
}

}  // namespace
}  // namespace ddpxx::walk_test
