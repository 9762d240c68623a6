#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <ddpxx/snapshot/safetensors.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::safetensors_test {
namespace {

/// A file made of this header and data, with the correct length of the header.
std::string with_length(std::string_view json, std::string_view data = {}) {
  const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{json.size()});
  return std::string{length.data(), 8} + std::string{json} + std::string{data};
}

class SafetensorsTest : public testing::Test {
 protected:
  /// The error about a file with this content.
  std::string refusal(const std::string& content) {
    const auto path = folder.file("refused", content);
    try {
      read_safetensors(path, Checksum::optional);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_TRUE(std::string_view{error.what()}.starts_with(path)) << error.what();
      return error.what();
    }
    return "it was accepted";
  }

  TemporaryFolder folder;
};

TEST_F(SafetensorsTest, ReadsBackEveryTypeAndShapeBitForBit) {
  const auto plain = at::arange(24, at::kFloat).view({2, 3, 4});
  const NamedTensors tensors{
      {"float", plain.div(7)},
      {"double", plain.to(at::kDouble).div(7)},
      {"half", plain.to(at::kHalf)},
      {"bfloat16", plain.to(at::kBFloat16)},
      {"int64", plain.to(at::kLong)},
      {"int32", plain.to(at::kInt)},
      {"int16", plain.to(at::kShort)},
      {"int8", plain.to(at::kChar)},
      {"uint8", plain.to(at::kByte)},
      {"bool", plain.gt(11)},
      {"complex", at::complex(plain, -plain)},
      {"conjugate", at::complex(plain, plain).conj()},  // a view whose memory has the numbers as they were before
      {"negative", at::imag(at::complex(plain, plain).conj())[0][0][1]},
      {"scalar", at::full({}, 0.1)},
      {"empty", at::empty({3, 0, 2})},
      {"three bytes", at::ones({3}, at::kByte)},
      {"strided", plain.transpose(0, 2)},
      {"with gradient", at::ones({2}).requires_grad_()},
      {"blocks.0.ln1.weight, \"\xC3\xA9\" \\", at::ones({1})},
  };
  const Metadata metadata{{"format", "pt"}, {"text", "\"quoted\"\n\xE2\x82\xAC"}};
  write_safetensors(folder / "file", tensors, metadata);
  const auto content = read_safetensors(folder / "file");
  EXPECT_EQ(content.metadata, metadata);
  ASSERT_EQ(content.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto& read = content.tensors.at(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(read.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(read.equal(tensor)) << name;
  }
}

TEST_F(SafetensorsTest, WritesWhatTheFormatSays) {
  write_safetensors(folder / "file", {{"b", at::full({1, 2}, 1.0F)}, {"a", at::full({2}, 3, at::kByte)}});
  auto file = read_file(folder / "file", Errc::storage);
  const auto digits = file.find("checksum\":\"") + 11;
  file.replace(digits, 8, "--------");
  std::string json =
      R"({"__metadata__":{"ddpxx.checksum":"--------"},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[8,10]},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(file, with_length(json, std::string("\0\0\x80\x3f\0\0\x80\x3f\x03\x03", 10)));
}

TEST_F(SafetensorsTest, ReadsFilesOfOtherProgramsUnlessTheChecksumIsRequired) {
  // The header is not padded, so that the numbers lie at odd addresses; an empty tensor lies between the others.
  const auto path = folder.file(
      "file", with_length(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}, "m":{"shape":[0],"dtype":"I64",)"
                          R"("data_offsets":[1,1]},"f":{"dtype":"BOOL","shape":[1,1],"data_offsets":[0,1]}})",
                          std::string("\1\0\0\x80\x3f", 5)));
  EXPECT_THROW(read_safetensors(path, Checksum::required), Error);
  const auto content = read_safetensors(path);
  EXPECT_EQ(content.tensors.at("x").item<float>(), 1.0F);
  EXPECT_EQ(content.tensors.at("m").numel(), 0);
  EXPECT_TRUE(content.tensors.at("f").item<bool>());
  EXPECT_TRUE(content.metadata.empty());
  EXPECT_TRUE(read_safetensors(folder.file("none", with_length("{}")), Checksum::optional).tensors.empty());
}

/// Python's safetensors.torch names the types so.
TEST_F(SafetensorsTest, ReadsEveryTypeThatPythonWrites) {
  for (const auto& [name, type] :
       std::vector<std::pair<std::string, at::ScalarType>>{{"F64", at::kDouble},
                                                           {"F32", at::kFloat},
                                                           {"F16", at::kHalf},
                                                           {"BF16", at::kBFloat16},
                                                           {"I64", at::kLong},
                                                           {"I32", at::kInt},
                                                           {"I16", at::kShort},
                                                           {"I8", at::kChar},
                                                           {"U8", at::kByte},
                                                           {"BOOL", at::kBool},
                                                           {"F8_E4M3", at::kFloat8_e4m3fn},
                                                           {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
                                                           {"F8_E5M2", at::kFloat8_e5m2},
                                                           {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
                                                           {"C64", at::kComplexFloat},
                                                           {"U64", at::kUInt64},
                                                           {"U32", at::kUInt32},
                                                           {"U16", at::kUInt16}}) {
    const auto size = at::elementSize(type);
    const auto json =
        R"({"x":{"dtype":")" + name + R"(","shape":[1],"data_offsets":[0,)" + std::to_string(size) + "]}}";
    const auto x = read_safetensors(folder.file(name, with_length(json, std::string(size, '\1')))).tensors.at("x");
    EXPECT_EQ(x.scalar_type(), type);
    EXPECT_EQ(x.nbytes(), size) << name;
  }
}

TEST_F(SafetensorsTest, GivesTensorsThatOutliveTheFileAndMayBeWrittenTo) {
  write_safetensors(folder / "file", {{"x", at::arange(5, at::kFloat)}});
  auto x = read_safetensors(folder / "file").tensors.at("x");
  const auto untouched = read_safetensors(folder / "file").tensors.at("x");
  std::filesystem::remove(folder / "file");
  x.add_(1);
  EXPECT_TRUE(x.equal(at::arange(1, 6, at::kFloat)));
  EXPECT_TRUE(untouched.equal(at::arange(5, at::kFloat)));
}

TEST_F(SafetensorsTest, RefusesEveryFlippedBitAndEveryLength) {
  write_safetensors(
      folder / "file",
      {{"a", at::arange(100, at::kFloat)}, {"b", at::ones({7}, at::kByte)}, {"c", at::zeros({12}, at::kBool)}},
      {{"format", "pt"}, {"run", "x"}});
  const auto path = folder / "file";
  const auto sound = read_file(path, Errc::storage);
  ASSERT_GT(sound.size(), 600U);
  const auto is_refused = [&path] {
    try {
      read_safetensors(path, Checksum::required);
    } catch (const Error& error) {
      return error.code() == Errc::storage;
    }
    return false;
  };
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  const auto put = [&file](std::size_t place, char byte) {
    file.seekp(static_cast<std::streamoff>(place)).put(byte).flush();
  };
  for (std::size_t place = 0; place < sound.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      put(place, static_cast<char>(sound[place] ^ (1 << bit)));
      ASSERT_TRUE(is_refused()) << "bit " << bit << " of byte " << place;
    }
    put(place, sound[place]);
  }
  ASSERT_FALSE(is_refused());
  put(sound.size(), '\0');
  ASSERT_TRUE(is_refused()) << "accepted with an additional byte";
  for (auto length = sound.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    ASSERT_TRUE(is_refused()) << "accepted with only " << length << " bytes";
  }
}

TEST_F(SafetensorsTest, RefusesAChecksumThatItCannotFind) {
  // Another program may print the header with a space behind the colon.
  EXPECT_NE(refusal(with_length(R"({"__metadata__": {"ddpxx.checksum": "00000000"}})")).find("checksum"),
            std::string::npos);
}

TEST_F(SafetensorsTest, RefusesHostileHeadersAndSaysWhy) {
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return R"({"dtype":")" + std::string{dtype} + R"(","shape":[)" + std::string{shape} + R"(],"data_offsets":[)" +
           std::string{offsets} + "]}";
  };
  const auto one = tensor("F32", "1", "0,4");
  const std::string four(4, '\0');
  struct Case {
    std::string content, says;
  };
  const auto header = [](const std::string& json, const std::string& data = {}) { return with_length(json, data); };
  const std::vector<Case> cases{
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), "claims 9223372036854775807"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "claims 18446744073709551615"},
      {std::string("\x03\0\0\0\0\0\0\0{}", 10), "claims 3"},
      {header(""), "begin with {"},
      {header(" {}"), "begin with {"},
      {header("[]"), "begin with {"},
      {header("{} x"), "not JSON"},
      {header("{}{}"), "not JSON"},
      {header("{"), "not JSON"},
      {header("{\"\xff\":1}"), "not JSON"},
      {header(R"({"x":)" + one + R"(,"x":)" + one + "}", four), "\"x\" comes twice"},
      {header(R"({"__metadata__":{},"__metadata__":{}})"), "__metadata__ comes twice"},
      {header(R"({"__metadata__":{"a":"1","a":"2"}})"), "\"a\" comes twice"},
      {header(R"({"__metadata__":{"a":1}})"), "out of place"},
      {header(R"({"__metadata__":{"a":{}}})"), "out of place"},
      {header(R"({"__metadata__":"a"})"), "out of place"},
      {header(R"({"x":[]})"), "out of place"},
      {header(R"({"x":null})"), "out of place"},
      {header(R"({"x":{}})"), "lacks"},
      {header(R"({"x":{"dtype":"F32","shape":[1]}})"), "lacks"},
      {header(R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four),
       "\"dtype\" comes twice"},
      {header(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", four), "not a property"},
      {header(R"({"x":)" + tensor("F31", "1", "0,4") + "}", four), "\"F31\" of \"x\" is unknown"},
      {header(R"({"x":)" + tensor("F32", "-1", "0,4") + "}", four), "negative"},
      {header(R"({"x":)" + tensor("F32", "1.0", "0,4") + "}", four), "fraction"},
      {header(R"({"x":)" + tensor("F32", "[1]", "0,4") + "}", four), "an array out of place"},
      {header(R"({"x":)" + tensor("F32", "true", "0,4") + "}", four), "true or false"},
      {header(R"({"x":)" + tensor("F32", "9223372036854775808", "0,4") + "}", four), "above"},
      {header(R"({"x":)" + tensor("F32", "4294967296,4294967296", "0,0") + "}"), "too large"},
      {header(R"({"x":)" + tensor("F32", "4611686018427387904", "0,0") + "}"), "too large"},
      {header(R"({"x":)" + tensor("F32", "0,4294967296,4294967296", "0,0") + "}"), "too large"},
      {header(R"({"x":)" + tensor("F32", "2", "0,4") + "}", four), "does not fit"},
      {header(R"({"x":)" + tensor("F32", "1", "0") + "}", four), "not two numbers"},
      {header(R"({"x":)" + tensor("F32", "1", "") + "}", four), "not two numbers"},
      {header(R"({"x":)" + tensor("F32", "1", "0,4,8") + "}", four), "out of place"},
      {header(R"({"x":)" + tensor("F32", "1", "4,0") + "}", four), "hole"},
      {header(R"({"x":)" + tensor("F32", "1", "4,8") + "}", four + four), "hole"},
      {header(R"({"x":)" + one + R"(,"y":)" + tensor("F32", "1", "8,12") + "}", four + four + four), "hole"},
      {header(R"({"x":)" + one + R"(,"y":)" + tensor("F32", "1", "2,6") + "}", four + four), "overlaps"},
      {header(R"({"x":)" + one + R"(,"y":)" + one + "}", four), "overlaps"},
      {header(R"({"x":)" + one + "}", four + "x"), "take 4 bytes, 5 are there"},
      {header(R"({"x":)" + one + "}", "abc"), "take 4 bytes, 3 are there"},
      {header(R"({"x":)" + tensor("F32", "1", "0,9223372036854775807") + "}", four), "does not fit"},
      {header(R"({"":)" + one + "}", four), "not allowed"},
      {header(R"({"../../etc/x":)" + one + "}", four), "not allowed"},
      {header(R"({"\u001b[2J":)" + one + "}", four), R"(the tensor name "\u001b[2J" is not allowed)"},
      {header(R"({"x":)" + tensor("BOOL", "1", "0,1") + "}", "\2"), "neither false nor true"},
      {header("{\"x\":" + std::string(100'000, '[') + "}"), "out of place"},
      {header("{\"x\":" +
                  tensor(
                      "F32",
                      "1" + std::string(200, ' ') + ",1" +
                          [] {
                            std::string ones;
                            for (int i = 0; i < 100; ++i) ones += ",1";
                            return ones;
                          }(),
                      "0,4") +
                  "}",
              four),
       "too long"},
  };
  for (const auto& [content, says] : cases) {
    const auto text = refusal(content);
    EXPECT_NE(text.find(says), std::string::npos) << says << "\n" << text;
  }
}

TEST_F(SafetensorsTest, WritesAndReadsManyTensors) {
  NamedTensors tensors;
  for (int i = 0; i < 10'000; ++i) tensors["layer." + std::to_string(i)] = at::full({1}, i, at::kInt);
  write_safetensors(folder / "file", tensors);
  const auto content = read_safetensors(folder / "file");
  EXPECT_EQ(content.tensors.size(), 10'000U);
  EXPECT_EQ(content.tensors.at("layer.9876").item<int>(), 9876);
}

TEST_F(SafetensorsTest, RefusesToWriteWhatItWouldNotRead) {
  const auto x = at::ones({1});
  write_safetensors(folder / "file", {{"x", x}});
  const auto before = read_file(folder / "file", Errc::storage);
  const std::vector<std::pair<NamedTensors, Metadata>> cases{
      {{{"__metadata__", x}}, {}},   {{{"", x}}, {}},
      {{{"a\nb", x}}, {}},           {{{"a\xff", x}}, {}},
      {{{"x", x}}, {{"a", "\xff"}}}, {{{"x", at::ones({1}, at::kComplexDouble)}}, {}}};
  for (const auto& [tensors, metadata] : cases) {
    try {
      write_safetensors(folder / "file", tensors, metadata);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_NE(std::string{error.what()}.find((folder / "file").string()), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(read_file(folder / "file", Errc::storage), before);
}

}  // namespace
}  // namespace ddpxx::safetensors_test
