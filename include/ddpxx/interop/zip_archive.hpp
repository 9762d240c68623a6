// ddpxx/interop/zip_archive.hpp — reads the records of a zip archive as torch.save writes it, without compression.
// LibTorch's own reader trusts the sizes that an archive claims, and does not compare checksums. This reader checks
// both.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/file.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx {

/// The records of an archive: their names and bytes.
using ZipRecords = std::map<std::string, std::span<std::byte>>;

/// Reads an archive. The records are views of `bytes`. Takes memory in proportion to the list of names.
/// Errors  `storage` for bytes that are not an archive, a record that lies outside of them or overlaps another, a name
///         that comes twice, compression, encryption, and a wrong checksum. A checksum of 0 is not compared: torch.save
///         has an option that leaves checksums out.
ZipRecords read_zip(std::span<std::byte> bytes);

/// Returns the checksum of zip archives, which is CRC-32 of IEEE 802.3.
std::uint32_t crc32(Bytes bytes);

namespace detail {

/// Tables for eight bytes at a time: kCrc32[k][b] is the checksum of byte b followed by k zeros.
inline constexpr auto kCrc32 = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8U) ^ tables[0][tables[k - 1][byte] & 0xFFU];
  return tables;
}();

/// Reads a number of type T at `place`.
/// Errors  `storage` if the bytes end before it does.
template <class T>
T number_at(Bytes bytes, std::size_t place) {
  if (place > bytes.size() || bytes.size() - place < sizeof(T)) refuse_file("the zip archive ends too early");
  T number{};
  std::memcpy(&number, bytes.data() + place, sizeof(T));
  return number;
}

struct ZipDirectory {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// Finds the list of records. The end of the archive says where it is; large archives say it again in 64 bits.
inline ZipDirectory find_zip_directory(Bytes bytes) {
  constexpr std::size_t kEndBytes = 22, kMaxComment = 0xFFFF, kLocatorBytes = 20;
  for (std::size_t back = kEndBytes; back <= std::min(bytes.size(), kEndBytes + kMaxComment); ++back) {
    const auto end = bytes.size() - back;
    if (number_at<std::uint32_t>(bytes, end) != 0x06054B50 ||
        number_at<std::uint16_t>(bytes, end + 20) != back - kEndBytes)
      continue;
    if (end >= kLocatorBytes && number_at<std::uint32_t>(bytes, end - kLocatorBytes) == 0x07064B50) {
      const auto wide = number_at<std::uint64_t>(bytes, end - kLocatorBytes + 8);
      if (wide > bytes.size() || number_at<std::uint32_t>(bytes, wide) != 0x06064B50)
        refuse_file("the end of the zip archive is damaged");
      return {number_at<std::uint64_t>(bytes, wide + 48), number_at<std::uint64_t>(bytes, wide + 40)};
    }
    return {number_at<std::uint32_t>(bytes, end + 16), number_at<std::uint32_t>(bytes, end + 12)};
  }
  refuse_file("it is not a zip archive, or its end is missing");
}

struct ZipEntry {
  std::string name;
  std::uint64_t header = 0;  ///< Offset of the record's own header.
  std::uint64_t size = 0;
  std::uint32_t sum = 0;
};

/// Reads the entry at `place` of the directory, and moves `place` to the next entry.
inline ZipEntry read_zip_entry(Bytes directory, std::size_t& place) {
  if (number_at<std::uint32_t>(directory, place) != 0x02014B50) refuse_file("the list of records is damaged");
  const auto half = [&](std::size_t offset) { return number_at<std::uint16_t>(directory, place + offset); };
  const auto word = [&](std::size_t offset) { return number_at<std::uint32_t>(directory, place + offset); };
  const std::size_t name_bytes = half(28), extra_bytes = half(30), comment_bytes = half(32);
  const auto name = place + 46, extra = name + name_bytes, end = extra + extra_bytes;
  if (end > directory.size()) refuse_file("the list of records ends too early");
  ZipEntry entry{{reinterpret_cast<const char*>(directory.data() + name), name_bytes}, word(42), word(24), word(16)};
  if (half(10) != 0) refuse_file(in_quotes(entry.name) + " is compressed; torch.save compresses nothing");
  if ((half(8) & 1U) != 0) refuse_file(in_quotes(entry.name) + " is encrypted");

  // A number that does not fit 32 bits is all ones above, and stands in an extra field, in this order.
  std::uint64_t packed = word(20);
  for (std::size_t field = extra; field + 4 <= end;) {
    const auto bytes = directory.first(end);
    const auto field_end = field + 4 + number_at<std::uint16_t>(bytes, field + 2);
    if (number_at<std::uint16_t>(bytes, field) == 1) {
      auto wide = field + 4;
      for (auto* number : {&entry.size, &packed, &entry.header})
        if (*number == 0xFFFFFFFFU) {
          *number = number_at<std::uint64_t>(bytes, wide);
          wide += 8;
        }
    }
    field = field_end;
  }
  if (packed != entry.size) refuse_file(in_quotes(entry.name) + " has two different sizes");
  place = end + comment_bytes;
  return entry;
}

/// Returns the bytes of a record.
inline std::span<std::byte> zip_content(std::span<std::byte> bytes, const ZipEntry& entry) {
  const Bytes before{bytes};
  if (entry.header > bytes.size() || number_at<std::uint32_t>(before, entry.header) != 0x04034B50)
    refuse_file(in_quotes(entry.name) + " is not where the list of records says");
  const auto begin = entry.header + 30 + number_at<std::uint16_t>(before, entry.header + 26) +
                     number_at<std::uint16_t>(before, entry.header + 28);
  if (begin > bytes.size() || entry.size > bytes.size() - begin)
    refuse_file(in_quotes(entry.name) + " claims " + std::to_string(entry.size) + " bytes, and the archive ends");
  return bytes.subspan(begin, entry.size);
}

}  // namespace detail

inline std::uint32_t crc32(Bytes bytes) {
  const auto& table = detail::kCrc32;
  std::uint32_t sum = 0xFFFFFFFFU;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes.data(), sizeof(eight));
    eight ^= sum;
    sum = 0;
    for (unsigned k = 0; k < 8; ++k) sum ^= table[7 - k][(eight >> (8 * k)) & 0xFFU];
  }
  for (const auto byte : bytes) sum = (sum >> 8U) ^ table[0][(sum ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  return ~sum;
}

inline ZipRecords read_zip(std::span<std::byte> bytes) {
  using detail::in_quotes, detail::refuse_file;
  const auto [begin, size] = detail::find_zip_directory(bytes);
  if (begin > bytes.size() || size > bytes.size() - begin) refuse_file("the list of records is not in the archive");
  const Bytes directory = bytes.subspan(begin, size);
  ZipRecords records;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places{{begin, begin + size}};
  std::vector<std::pair<std::string, std::uint32_t>> sums;
  for (std::size_t place = 0; place < directory.size();) {
    const auto entry = detail::read_zip_entry(directory, place);
    const auto content = detail::zip_content(bytes, entry);
    if (entry.sum != 0) sums.emplace_back(entry.name, entry.sum);
    if (!records.emplace(entry.name, content).second) refuse_file(in_quotes(entry.name) + " comes twice");
    places.emplace_back(entry.header, static_cast<std::uint64_t>(content.data() - bytes.data()) + content.size());
  }
  // Overlapping records would let a small file claim much memory.
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].second) refuse_file("records of the zip archive overlap");
  // Compute checksums after the check for overlaps, so that each byte is read once.
  for (const auto& [name, sum] : sums)
    if (crc32(records.at(name)) != sum) refuse_file("the checksum of " + in_quotes(name) + " is wrong");
  return records;
}

static_assert(std::endian::native == std::endian::little, "zip archives are little-endian, and so is this reader");

}  // namespace ddpxx
