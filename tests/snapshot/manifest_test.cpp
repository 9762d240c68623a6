#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/manifest.hpp>

namespace ddpxx::manifest_test {
namespace {

using testing::HasSubstr;

Manifest sound() {
  Manifest manifest;
  manifest.run.step = 5;
  manifest.starts = {"0123456789ab"};
  manifest.run.metrics = {{"loss", 0.5}};
  manifest.run.settings = {{"training.seed", "5"}};
  manifest.files = {{"rank-0", 100, chunk_bytes_for(100), {7}}, {"rank-1", 24, chunk_bytes_for(24), {9}}};
  manifest.tensors["a"] = {at::kFloat, {2, 3}, {{0, 0, 4, 80}, {1, 4, 6, 8}}};
  manifest.tensors["b"] = {at::kBool, {}, {{1, 0, 1, 0}}};
  manifest.run.parameters = {{"a", true}};
  return manifest;
}

/// The text of the manifest before the checksum.
std::string body_of(const Manifest& manifest) {
  const auto text = print_manifest(manifest);
  return text.substr(0, text.rfind(detail::kManifestSum));
}
std::string with_sum(const std::string& body) {
  return body + std::string{detail::kManifestSum} + sums_text({crc32c(bytes_of(body))}) +
         std::string{detail::kManifestEnd};
}

/// A valid manifest as JSON with another value at a JSON pointer, and with a correct checksum.
std::string with_value(const std::string& place, const std::string& value) {
  auto json = nlohmann::ordered_json::parse(body_of(sound()) + '}');
  json[nlohmann::ordered_json::json_pointer{place}] = "HERE";
  auto text = json.dump();
  text.replace(text.find("\"HERE\""), 6, value);
  text.pop_back();
  return with_sum(text);
}

std::string refusal_of(const std::string& text) {
  try {
    parse_manifest(text);
    return "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    return error.what();
  }
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Manifest, ComesBackAsItWasPrinted) {
  const auto text = print_manifest(sound());
  EXPECT_EQ(print_manifest(parse_manifest(text)), text);
  EXPECT_EQ(parse_manifest(with_value("/step", "6")).run.step, 6);
  EXPECT_TRUE(is_whole_manifest(text));
}

TEST(Manifest, ReplacesBytesThatAreNotUTF8) {
  auto manifest = sound();
  manifest.run.settings.push_back({.path = "model.n_layer", .value = "2", .origin = "r\xE9seau/model.pt"});
  EXPECT_EQ(parse_manifest(print_manifest(manifest)).run.settings.back().origin, "r\xEF\xBF\xBDseau/model.pt");
}

TEST(Manifest, LeavesOutMetricsThatAreNotFinite) {
  auto manifest = sound();
  manifest.run.metrics["diverged"] = std::numeric_limits<double>::quiet_NaN();
  manifest.run.metrics["overflown"] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(print_manifest(manifest), print_manifest(sound())) << "JSON has neither NaN nor infinity";
}

TEST(Manifest, RefusesAHostileOneAndSaysWhy) {
  struct Case {
    std::string place, value, says;
  };
  const std::string no_name = " is not the name of a file", no_fit = "the checksums of \"rank-0\" do not fit its size",
                    gap = "the parts of \"a\" overlap, or leave a hole", outside = "lies outside of its file",
                    huge = "9223372036854775807";
  std::string ones;
  for (int i = 0; i < 64; ++i) ones += ",1";
  const std::vector<Case> cases{
      {"/format", "2", "its format is 2, not"},
      {"/format", R"("ddpxx snapshot 2")", "its format is \"ddpxx snapshot 2\", not"},
      {"/step", "-1", "it has -1 where a count belongs"},
      {"/step", "1.5", "it has 1.5 where a count belongs"},
      {"/step", "9223372036854775808", "it has 9223372036854775808 where a count belongs"},
      {"/step", "null", "it has a null where a count belongs"},
      {"/epoch", "{}", "it has an object where a count belongs"},
      {"/position", R"("5\u001b[2J")", R"(it has "5\u001b[2J" where a count belongs)"},
      {"/world_size", "true", "it has a boolean where a count belongs"},
      {"/starts", R"(["0123456789AB"])", "\"0123456789AB\" is not the name of a start"},
      {"/starts", R"([""])", "is not the name of a start"},
      {"/metrics", R"({"loss":"low"})", "it is not the manifest"},
      {"/settings", "[5]", "it is not the manifest"},
      {"/config_hash", R"("../x")", "is not the hash of a configuration"},
      {"/files", "5", "it is not the manifest"},
      {"/files/0/name", R"("a/b")", "\"a/b\"" + no_name},
      {"/files/0/name", R"("/etc/passwd")", no_name},
      {"/files/0/name", R"("../rank-0")", no_name},
      {"/files/0/name", R"("..")", no_name},
      {"/files/0/name", R"(".rank-0")", no_name},
      {"/files/0/name", R"("")", no_name},
      {"/files/0/name", R"("rank 0")", no_name},
      {"/files/0/name", R"("\u001b[2J")", R"("\u001b[2J")" + no_name},
      {"/files/0/name", "\"r\u00e4nk\"", no_name},
      {"/files/0/name", "5", "it is not the manifest"},
      {"/files/1/name", R"("rank-0")", "the file \"rank-0\" stands there twice"},
      {"/files/0/bytes", "-1", "it has -1 where a count belongs"},
      {"/files/0/bytes", R"("100")", "it has \"100\" where a count belongs"},
      {"/files/0/bytes", huge, no_fit},
      {"/files/0/bytes", "0", no_fit},
      {"/files/0/bytes", "1048577", no_fit},
      {"/files/0/bytes", "95", outside},
      {"/files/0/chunk", "0", no_fit},
      {"/files/0/chunk", "1", no_fit},
      {"/files/0/chunk", huge, no_fit},
      {"/files/0/crc32c", R"("")", no_fit},
      {"/files/0/crc32c", R"("0000000")", no_fit},
      {"/files/0/crc32c", R"("0000000g")", no_fit},
      {"/files/0/crc32c", R"("0000000000000000")", no_fit},
      {"/tensors/..~1a", "{}", "the tensor name \"../a\" is not allowed"},
      {"/tensors/", "{}", "the tensor name \"\" is not allowed"},
      {"/tensors/a/dtype", R"("F31")", "of the unknown type \"F31\""},
      {"/tensors/a/shape", "[-2,-3]", "it has -2 where a count belongs"},
      {"/tensors/a/shape", "[4294967296,4294967296]", "the shape of \"a\" is too large"},
      {"/tensors/a/shape", "[0,4294967296,4294967296]", "the shape of \"a\" is too large"},
      {"/tensors/a/shape", "[" + huge + "]", "the shape of \"a\" is too large"},
      {"/tensors/a/shape", "6", "is too long, or is not a shape"},
      {"/tensors/a/shape", "[6" + ones + "]", "is too long, or is not a shape"},
      {"/tensors/a/shape", "[7]", "the parts of \"a\" are not all of it"},
      {"/tensors/a/shape", "[5]", gap},
      {"/tensors/a/parts", "[]", "are not all of it"},
      {"/tensors/a/parts", "[[0,0,4,80]]", "are not all of it"},
      {"/tensors/a/parts", "[[0,0,4]]", "is not four numbers"},
      {"/tensors/a/parts", "[5]", "is not four numbers"},
      {"/tensors/a/parts", "[[0,0,4,80],[1,3,6,8]]", gap},
      {"/tensors/a/parts", "[[0,0,4,80],[1,5,6,8]]", gap},
      {"/tensors/a/parts", "[[0,1,4,80],[1,4,6,8]]", gap},
      {"/tensors/a/parts", "[[1,4,6,8],[0,0,4,80]]", gap},
      {"/tensors/a/parts", "[[0,0,0,80],[0,0,4,80],[1,4,6,8]]", gap},
      {"/tensors/a/parts", "[[0,0,4,80],[1,4,3,8]]", gap},
      {"/tensors/a/parts", "[[0,0," + huge + ",0]]", gap},
      {"/tensors/a/parts", "[[0,-1,4,80],[1,4,6,8]]", "it has -1 where a count belongs"},
      {"/tensors/a/parts", "[[2,0,6,0]]", outside},
      {"/tensors/a/parts", "[[" + huge + ",0,6,0]]", outside},
      {"/tensors/a/parts", "[[0,0,6,80]]", outside},
      {"/tensors/a/parts", "[[0,0,6,101]]", outside},
      {"/tensors/a/parts", "[[0,0,6," + huge + "]]", outside},
      {"/tensors/b/parts", "[[1,0,1,8]]", "two parts lie on the same bytes of \"rank-1\""},
      {"/tensors/b/parts", "[[0,0,1,95]]", "two parts lie on the same bytes of \"rank-0\""},
      {"/parameters", "[5]", "it is not the manifest"},
  };
  for (const auto& [place, value, says] : cases)
    EXPECT_THAT(refusal_of(with_value(place, value)), HasSubstr(says)) << place << ' ' << value;
  EXPECT_THAT(refusal_of(body_of(sound()) + ",\"crc32c\":\"00000000\"}\n"), HasSubstr("its checksum is wrong"));
  EXPECT_THAT(refusal_of(""), HasSubstr("it is cut off"));
  EXPECT_THAT(refusal_of(with_sum("[")), HasSubstr("it is not the manifest"));
}

TEST(Manifest, RefusesDeepOnesWithoutGoingDeep) {
  for (const char* place : {"/format", "/step", "/settings", "/files/0/bytes", "/tensors/a/parts"}) {
    const auto text = with_value(place, nested(200'000));
    EXPECT_THAT(refusal_of(text), HasSubstr("nests deeper than")) << place;
    EXPECT_FALSE(is_of_another_version(text)) << place;
  }
}

TEST(Manifest, OfManyTensorsIsPrintedAndReadInTime) {
  auto manifest = sound();
  manifest.files[0].bytes = 1'000'000;
  manifest.files[0].chunk_bytes = chunk_bytes_for(1'000'000);
  for (std::uint64_t i = 0; i < 30'000; ++i)
    manifest.tensors["model.layer." + std::to_string(i)] = {at::kByte, {1}, {{0, 0, 1, 1000 + i}}};
  const auto begin = std::chrono::steady_clock::now();
  const auto text = print_manifest(manifest);
  EXPECT_EQ(parse_manifest(text).tensors.size(), manifest.tensors.size());
  // A time that grows with the square of the number of tensors would be minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{30});
}

}  // namespace
}  // namespace ddpxx::manifest_test
