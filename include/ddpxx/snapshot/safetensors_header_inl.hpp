// ddpxx/snapshot/safetensors_header_inl.hpp — the definitions of safetensors_header.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/dtype_name.hpp>
#include <ddpxx/snapshot/quotes.hpp>
#include <ddpxx/snapshot/safetensors_header.hpp>
#include <ddpxx/snapshot/tensor_shape.hpp>

namespace ddpxx {

namespace detail {

/// Receives the parser's events and refuses the first one that the format does not allow. The format nests three levels
/// deep, so a hostile text cannot make this take more memory.
class SafetensorsHeaderReader {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) {
    if (place_ == Place::start)
      place_ = Place::top;
    else if (place_ == Place::metadata_value)
      place_ = Place::metadata;
    else if (place_ == Place::tensor_value)
      place_ = Place::tensor;
    else
      refuse_here("an object");
    return true;
  }
  bool end_object() {
    if (place_ == Place::tensor && !(has_dtype_ && has_shape_ && has_offsets_))
      refuse_file(in_quotes(name_) + " lacks dtype, shape or data_offsets");
    place_ = place_ == Place::top ? Place::end : Place::top;
    return true;
  }
  bool key(std::string& key) {
    if (place_ == Place::top && key == "__metadata__") {
      if (std::exchange(has_metadata_, true)) refuse_file("__metadata__ comes twice");
      place_ = Place::metadata_value;
    } else if (place_ == Place::top) {
      check_tensor_name(key);
      if (!header.entries.try_emplace(key).second) refuse_file(in_quotes(key) + " comes twice");
      name_ = key;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      place_ = Place::tensor_value;
    } else if (place_ == Place::metadata) {
      if (!header.metadata.try_emplace(key).second) refuse_file(in_quotes(key) + " comes twice in __metadata__");
      name_ = key;
      place_ = Place::metadata_text;
    } else {
      const bool known = key == "dtype" || key == "shape" || key == "data_offsets";
      auto& seen = key == "dtype" ? has_dtype_ : key == "shape" ? has_shape_ : has_offsets_;
      if (!known) refuse_file(in_quotes(key) + " is not a property of a tensor");
      if (std::exchange(seen, true)) refuse_file(in_quotes(key) + " comes twice in " + in_quotes(name_));
      place_ = key == "dtype" ? Place::dtype : key == "shape" ? Place::shape_value : Place::offsets_value;
    }
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ == Place::shape_value)
      place_ = Place::shape;
    else if (place_ == Place::offsets_value)
      place_ = Place::offset_begin;
    else
      refuse_here("an array");
    return true;
  }
  bool end_array() {
    if (place_ == Place::offset_begin || place_ == Place::offset_end)
      refuse_file("data_offsets of " + in_quotes(name_) + " are not two numbers");
    place_ = Place::tensor;
    return true;
  }
  bool string(std::string& text) {
    if (place_ == Place::metadata_text) {
      header.metadata[name_] = text;
      place_ = Place::metadata;
    } else if (place_ == Place::dtype) {
      const auto type = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                                     [&](const SafetensorsType& known) { return known.name == text; });
      if (type == kSafetensorsTypes.end())
        refuse_file("dtype " + in_quotes(text) + " of " + in_quotes(name_) + " is unknown");
      header.entries[name_].dtype = type->dtype;
      place_ = Place::tensor;
    } else {
      refuse_here("a text");
    }
    return true;
  }
  bool number_unsigned(std::uint64_t number) {
    auto& entry = header.entries[name_];
    if (number > std::numeric_limits<std::int64_t>::max()) refuse_here("a number above 2^63");
    if (place_ == Place::shape) {
      if (entry.shape.size() == kMaxDimensions) refuse_file("the shape of " + in_quotes(name_) + " is too long");
      entry.shape.push_back(static_cast<std::int64_t>(number));
    } else if (place_ == Place::offset_begin) {
      entry.begin = number;
      place_ = Place::offset_end;
    } else if (place_ == Place::offset_end) {
      entry.end = number;
      place_ = Place::offsets_done;
    } else {
      refuse_here("a number");
    }
    return true;
  }
  bool number_integer(std::int64_t) { refuse_here("a negative number"); }
  bool number_float(double, const std::string&) { refuse_here("a fraction"); }
  bool boolean(bool) { refuse_here("true or false"); }
  bool null() { refuse_here("null"); }
  bool binary(std::vector<std::uint8_t>&) { refuse_here("binary"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    refuse_file("the header is not JSON at its byte " + std::to_string(position));
  }

 private:
  static constexpr std::size_t kMaxDimensions = 64;

  enum class Place {
    start,
    top,
    end,
    metadata_value,
    metadata,
    metadata_text,
    tensor_value,
    tensor,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offset_begin,
    offset_end,
    offsets_done
  };

  [[noreturn]] void refuse_here(const std::string& what) const {
    refuse_file("the header has " + what + " out of place" +
                (name_.empty() ? "" : ", at or after " + in_quotes(name_)));
  }

  Place place_ = Place::start;
  std::string name_;  ///< The tensor or metadata key whose value is being read.
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

}  // namespace detail

DDPXX_INLINE SafetensorsHeader parse_safetensors_header(std::string_view json, std::size_t data_bytes) {
  detail::SafetensorsHeaderReader reader;
  if (!json.starts_with('{')) detail::refuse_file("the header does not begin with {");
  nlohmann::json::sax_parse(json, &reader);

  using Named = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const Named*> in_order;
  for (const auto& named : reader.header.entries) in_order.push_back(&named);
  std::sort(in_order.begin(), in_order.end(), [](const Named* a, const Named* b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  std::size_t covered = 0;
  for (const auto* named : in_order) {
    const auto& [name, entry] = *named;
    if (entry.begin != covered || entry.end < entry.begin)
      detail::refuse_file(detail::in_quotes(name) + " overlaps its neighbour, or leaves a hole");
    if (entry.end - entry.begin != detail::bytes_of_shape(name, entry.dtype, entry.shape))
      detail::refuse_file("the shape of " + detail::in_quotes(name) + " does not fit its bytes");
    covered = entry.end;
  }
  if (covered != data_bytes)
    detail::refuse_file("its tensors take " + std::to_string(covered) + " bytes, " + std::to_string(data_bytes) +
                        " are there");
  return std::move(reader.header);
}

DDPXX_INLINE std::string print_safetensors_header(const SafetensorsHeader& header) {
  try {
    auto json = "{\"__metadata__\":" + nlohmann::json(header.metadata).dump();
    for (const auto& [name, entry] : header.entries) {
      detail::check_tensor_name(name);
      const auto type = std::find_if(detail::kSafetensorsTypes.begin(), detail::kSafetensorsTypes.end(),
                                     [&](const detail::SafetensorsType& known) { return known.dtype == entry.dtype; });
      if (type == detail::kSafetensorsTypes.end())
        detail::refuse_file(detail::in_quotes(name) +
                            " is of a dtype that safetensors does not have: " + at::toString(entry.dtype));
      json += ',' + nlohmann::json(name).dump() + ":{\"dtype\":\"" + std::string{type->name} +
              "\",\"shape\":" + nlohmann::json(entry.shape).dump() + ",\"data_offsets\":[" +
              std::to_string(entry.begin) + ',' + std::to_string(entry.end) + "]}";
    }
    return json + '}';
  } catch (const nlohmann::json::exception&) {
    detail::refuse_file("a name or a text of the metadata is not UTF-8");
  }
}

DDPXX_INLINE std::string front_of_file(const SafetensorsHeader& header) {
  auto json = print_safetensors_header(header);
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeaderBytes)
    detail::refuse_file("the header would have " + std::to_string(json.size()) +
                        " bytes, and readers of safetensors take no more than " + std::to_string(kMaxHeaderBytes) +
                        ": there are too many tensors");
  const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{json.size()});
  return std::string{length.data(), length.size()} + json;
}

}  // namespace ddpxx
