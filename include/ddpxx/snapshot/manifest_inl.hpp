// ddpxx/snapshot/manifest_inl.hpp — the definitions of manifest.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/dtype_name.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/quotes.hpp>
#include <ddpxx/snapshot/tensor_shape.hpp>

namespace ddpxx {

namespace detail {

inline constexpr std::string_view kManifestFormat = "ddpxx snapshot 1";
inline constexpr std::string_view kManifestSum = ",\"crc32c\":\"";
inline constexpr std::string_view kManifestEnd = "\"}\n";

/// True if `name` may name a file of a snapshot: printable ASCII, so that messages can show it, and no path.
inline bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~' && c != '/'; });
}

/// Returns how messages show an unexpected value. Arrays and objects are not printed: printing would recurse into them.
inline std::string value_text(const nlohmann::json& json) {
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>().substr(0, 40));
  return json.is_number() ? json.dump() : std::string{json.is_structured() ? "an " : "a "} + json.type_name();
}

/// Returns the text before the checksum.
/// Errors  `storage` if the checksum is wrong.
inline std::string_view checked_manifest(std::string_view text) {
  const auto tail = kManifestSum.size() + 8 + kManifestEnd.size();
  if (text.size() < tail) refuse_file("it is cut off");
  const auto body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) !=
      std::string{kManifestSum} + sums_text({crc32c(ddpxx::bytes_of(body))}) + std::string{kManifestEnd})
    refuse_file("its checksum is wrong");
  return body;
}

inline std::int64_t count_in(const nlohmann::json& json) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) ||
      json.get<std::int64_t>() < 0)
    refuse_file("it has " + value_text(json) + " where a count belongs");
  return json.get<std::int64_t>();
}

/// Limits far above what a run reaches, so that numbers computed from them fit 64 bits.
inline constexpr std::int64_t kMaxSteps = 1'000'000'000'000'000, kMaxEpochs = 1'000'000'000,
                              kMaxSamples = 1'000'000'000'000'000'000;

/// Returns the number under `key`, which counts steps, epochs, samples or tokens.
/// Errors  `storage` if it is above `max`.
inline std::int64_t progress_in(const nlohmann::json& manifest, const char* key, std::int64_t max) {
  const auto count = count_in(manifest.at(key));
  if (count > max)
    refuse_file(std::string{key} + "=" + std::to_string(count) + " is more than any run reaches (" +
                std::to_string(max) + ")");
  return count;
}

/// How deep arrays and objects nest in a JSON text.
inline int depth_of_json(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\' ? 1 : 0;
    else if (c == '{' || c == '[')
      deepest = std::max(deepest, ++depth);
    else if (c == '}' || c == ']')
      --depth;
  }
  return deepest;
}

/// Parses JSON that nests at most `kMaxDepth` deep: a deeper text could take a hundred times its own size in memory.
/// nlohmann::json's own callback is not used to find the depth: with one, its parser goes through all members of an
/// object at the end of each of them.
inline nlohmann::json parse_shallow(const std::string& text) {
  constexpr int kMaxDepth = 16;  // this format has 5
  if (depth_of_json(text) > kMaxDepth) refuse_file("it nests deeper than " + std::to_string(kMaxDepth));
  return nlohmann::json::parse(text);
}

inline ShardFile file_in(const nlohmann::json& json) {
  ShardFile file{json.at("name").get<std::string>(),
                 static_cast<std::uint64_t>(count_in(json.at("bytes"))),
                 static_cast<std::uint64_t>(count_in(json.at("chunk"))),
                 {}};
  if (!is_file_name(file.name)) refuse_file(in_quotes(file.name) + " is not the name of a file");
  const auto sums = parse_sums(json.at("crc32c").get<std::string>());
  if (!sums || file.chunk_bytes == 0 || file.chunk_bytes != chunk_bytes_for(file.bytes) ||
      sums->size() != (file.bytes + file.chunk_bytes - 1) / file.chunk_bytes)
    refuse_file("the checksums of " + in_quotes(file.name) + " do not fit its size");
  file.sums = *sums;
  return file;
}

inline StoredTensor tensor_in(const std::string& name, const nlohmann::json& json,
                              const std::vector<ShardFile>& files) {
  check_tensor_name(name);
  StoredTensor tensor{dtype_named(json.at("dtype").get<std::string>()), {}, {}};
  if (!json.at("shape").is_array() || json.at("shape").size() > 64)
    refuse_file("the shape of " + in_quotes(name) + " is too long, or is not a shape");
  for (const auto& length : json.at("shape")) tensor.shape.push_back(count_in(length));
  const auto element = at::elementSize(tensor.dtype);
  const auto numel = static_cast<std::int64_t>(bytes_of_shape(name, tensor.dtype, tensor.shape) / element);
  std::int64_t covered = 0;
  for (const auto& numbers : json.at("parts")) {
    if (!numbers.is_array() || numbers.size() != 4)
      refuse_file("a part of " + in_quotes(name) + " is not four numbers");
    const TensorPart part{static_cast<std::size_t>(count_in(numbers[0])), count_in(numbers[1]), count_in(numbers[2]),
                          static_cast<std::uint64_t>(count_in(numbers[3]))};
    if (part.begin != covered || part.end <= part.begin || part.end > numel)
      refuse_file("the parts of " + in_quotes(name) + " overlap, or leave a hole");
    const auto bytes = static_cast<std::uint64_t>(part.end - part.begin) * element;
    if (part.file >= files.size() || part.offset > files[part.file].bytes ||
        bytes > files[part.file].bytes - part.offset)
      refuse_file("a part of " + in_quotes(name) + " lies outside of its file");
    covered = part.end;
    tensor.parts.push_back(part);
  }
  if (covered != numel) refuse_file("the parts of " + in_quotes(name) + " are not all of it");
  return tensor;
}

/// Rejects a byte of a file that belongs to two parts: overlapping parts would let a small file claim huge tensors.
inline void check_apart(const Manifest& manifest) {
  std::set<std::string_view> names;
  for (const auto& file : manifest.files)
    if (!names.insert(file.name).second) refuse_file("the file " + in_quotes(file.name) + " stands there twice");
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> ranges(manifest.files.size());
  for (const auto& [name, tensor] : manifest.tensors)
    for (const auto& part : tensor.parts)
      ranges[part.file].emplace_back(
          part.offset, part.offset + static_cast<std::uint64_t>(part.end - part.begin) * at::elementSize(tensor.dtype));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::sort(ranges[i].begin(), ranges[i].end());
    for (std::size_t k = 1; k < ranges[i].size(); ++k)
      if (ranges[i][k].first < ranges[i][k - 1].second)
        refuse_file("two parts lie on the same bytes of " + in_quotes(manifest.files[i].name));
  }
}

inline bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
inline bool is_start(std::string_view name) { return name.size() == 12 && is_hexadecimal(name); }

}  // namespace detail

DDPXX_INLINE std::string print_manifest(const Manifest& manifest) {
  auto metrics = manifest.run.metrics;
  std::erase_if(metrics, [](const auto& metric) { return !std::isfinite(metric.second); });  // JSON has no such numbers
  nlohmann::ordered_json json{{"format", detail::kManifestFormat}, {"step", manifest.run.step},
                              {"epoch", manifest.run.epoch},       {"position", manifest.run.position},
                              {"world_size", manifest.world_size}, {"written_at", manifest.written_at},
                              {"starts", manifest.starts},         {"metrics", metrics}};
  json["settings"] = nlohmann::ordered_json::array();
  for (const auto& setting : manifest.run.settings)
    json["settings"].push_back({setting.path, setting.value, setting.origin});
  json["overrides"] = manifest.run.overrides;
  json["config_hash"] = manifest.run.config_hash;
  json["optimizer"] = manifest.run.optimizer;
  json["tokens"] = manifest.run.tokens;
  json["files"] = nlohmann::ordered_json::array();
  for (const auto& file : manifest.files)
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"chunk", file.chunk_bytes}, {"crc32c", sums_text(file.sums)}});
  nlohmann::ordered_json::object_t tensors;  // its own insertion looks for the name among all that are there
  for (const auto& [name, tensor] : manifest.tensors) {
    auto parts = nlohmann::ordered_json::array();
    for (const auto& part : tensor.parts) parts.push_back({part.file, part.begin, part.end, part.offset});
    tensors.push_back(
        {name, {{"dtype", detail::dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"parts", std::move(parts)}}});
  }
  json["tensors"] = std::move(tensors);
  json["parameters"] = nlohmann::ordered_json::array();
  for (const auto& [name, decays] : manifest.run.parameters) json["parameters"].push_back({name, decays});
  // The name of a file, from which a setting may come, is not always UTF-8, and a text of JSON is.
  auto text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.pop_back();
  return text + std::string{detail::kManifestSum} + sums_text({crc32c(bytes_of(text))}) +
         std::string{detail::kManifestEnd};
}

DDPXX_INLINE Manifest parse_manifest(std::string_view text) {
  try {
    const auto json = detail::parse_shallow(std::string{detail::checked_manifest(text)} + '}');
    if (json.at("format") != detail::kManifestFormat)
      detail::refuse_file("its format is " + detail::value_text(json.at("format")) + ", not \"" +
                          std::string{detail::kManifestFormat} + "\": another version of ddpxx wrote it");
    Manifest manifest;
    manifest.run.step = detail::progress_in(json, "step", detail::kMaxSteps);
    manifest.run.epoch = detail::progress_in(json, "epoch", detail::kMaxEpochs);
    manifest.run.position = detail::progress_in(json, "position", detail::kMaxSamples);
    manifest.world_size = static_cast<int>(std::min<std::int64_t>(detail::count_in(json.at("world_size")), INT32_MAX));
    if (json.contains("written_at")) manifest.written_at = detail::count_in(json.at("written_at"));
    manifest.starts = json.at("starts").get<std::vector<std::string>>();
    manifest.run.metrics = json.at("metrics").get<std::map<std::string, double>>();
    for (const auto& setting : json.at("settings"))
      manifest.run.settings.push_back({.path = setting.at(0),
                                       .value = setting.at(1),
                                       .origin = setting.size() > 2 ? setting.at(2).get<std::string>() : ""});
    // Manifests of older versions lack these.
    manifest.run.overrides = json.value("overrides", "");
    manifest.run.config_hash = json.value("config_hash", "");
    manifest.run.optimizer = json.value("optimizer", "");
    if (json.contains("tokens")) manifest.run.tokens = detail::progress_in(json, "tokens", detail::kMaxSamples);
    for (const auto& file : json.at("files")) manifest.files.push_back(detail::file_in(file));
    for (const auto& [name, tensor] : json.at("tensors").items())
      manifest.tensors.emplace(name, detail::tensor_in(name, tensor, manifest.files));
    if (json.contains("parameters"))
      for (const auto& parameter : json.at("parameters"))
        manifest.run.parameters.push_back({parameter.at(0).get<std::string>(), parameter.at(1).get<bool>()});
    for (const auto& start : manifest.starts)
      if (!detail::is_start(start)) detail::refuse_file(detail::in_quotes(start) + " is not the name of a start");
    if (!detail::is_hexadecimal(manifest.run.config_hash))
      detail::refuse_file(detail::in_quotes(manifest.run.config_hash) + " is not the hash of a configuration");
    detail::check_apart(manifest);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    detail::refuse_file(std::string{"it is not the manifest of a snapshot: "} + error.what());
  }
}

DDPXX_INLINE bool is_whole_manifest(std::string_view text) {
  try {
    detail::checked_manifest(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

DDPXX_INLINE bool is_of_another_version(std::string_view text) {
  try {
    const auto json = detail::parse_shallow(std::string{detail::checked_manifest(text)} + '}');
    return json.at("format") != detail::kManifestFormat;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace ddpxx
