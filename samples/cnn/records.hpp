// records.hpp — images as CIFAR-10's binary files hold them, read from such files or made.
// A record is a byte for the label, and then 32 x 32 bytes of red, of green and of blue, row by row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>

#include <ddpxx/ddpxx.hpp>

inline constexpr std::int64_t kClasses = 10, kSide = 32, kImageBytes = 3 * kSide * kSide,
                              kRecordBytes = 1 + kImageBytes;

enum class Part { train, test };

/// The records of one file.
/// Shapes  uint8 [images, 3073].
/// Errors  `data` if the file cannot be read, is not made of such records, or has a label above 9.
inline at::Tensor read_records(const std::filesystem::path& path) {
  const auto refuse = [&path](const std::string& why) {
    return ddpxx::Error{ddpxx::Errc::data, path.string() + ": " + why};
  };
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) throw refuse(error.message() + ": unpack cifar-10-binary.tar.gz, and set data.path to its folder");
  if (bytes == 0 || bytes % kRecordBytes != 0)
    throw refuse(std::to_string(bytes) + " bytes are not a whole number of records of " + std::to_string(kRecordBytes) +
                 " bytes: unpack cifar-10-binary.tar.gz again, the binary version of CIFAR-10");
  auto records = at::empty({bytes / kRecordBytes, kRecordBytes}, at::kByte);
  std::ifstream file{path, std::ios::binary};
  if (!file.read(static_cast<char*>(records.mutable_data_ptr()), bytes))
    throw refuse("cannot be read to its end: check the file's permissions, or unpack cifar-10-binary.tar.gz again");
  const auto wrong = (records.select(1, 0) >= kClasses).nonzero();
  if (wrong.numel() > 0) {
    const auto first = wrong[0].item<std::int64_t>();
    throw refuse("record " + std::to_string(first) + " has the label " +
                 std::to_string(records[first][0].item<std::int64_t>()) + ", which is not between 0 and 9: take the " +
                 "binary version of CIFAR-10");
  }
  return records;
}

/// The records of CIFAR-10 in a folder: data_batch_1.bin to data_batch_5.bin to train with, test_batch.bin to test
/// with.
///
/// Errors  `data` as read_records, and if the folder lacks one of them.
inline at::Tensor read_cifar10(const std::filesystem::path& folder, Part part) {
  if (part == Part::test) return read_records(folder / "test_batch.bin");
  std::vector<at::Tensor> files;
  for (int number = 1; number <= 5; ++number)
    files.push_back(read_records(folder / ("data_batch_" + std::to_string(number) + ".bin")));
  return at::cat(files);
}

/// Records of images that can be told apart: each class has a pattern of soft colors, and an image is the pattern of
/// its class under noise. The patterns depend on the seed alone, so that both parts have the same ones.
inline at::Tensor make_records(std::int64_t num_images, std::uint64_t seed, Part part) {
  const auto patterns = at::upsample_bilinear2d(at::randn({kClasses, 3, 4, 4}, at::detail::createCPUGenerator(seed)),
                                                {kSide, kSide}, /*align_corners=*/false);
  const auto own = at::detail::createCPUGenerator(ddpxx::BatchContext{seed}.seed_of(part == Part::train ? 0 : 1));
  const auto labels = at::randint(kClasses, {num_images}, own, at::kLong);
  const auto noise = at::randn({num_images, 3, kSide, kSide}, own);
  const auto images = (128 + 25 * patterns.index_select(0, labels) + 50 * noise).clamp(0, 255);
  return at::cat({labels.unsqueeze(1), images.view({num_images, kImageBytes})}, 1).to(at::kByte);
}
