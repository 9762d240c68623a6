// images.hpp — the images as a dataset, with random crops and flips for training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include <ddpxx/ddpxx.hpp>

#include "records.hpp"

struct ImagesConfig {
  std::string path = {};
  std::int64_t num_images = 4096;
  std::uint64_t seed = 0;
  bool augment = true;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&ImagesConfig::path>("Folder of CIFAR-10's binary files, data_batch_1.bin to data_batch_5.bin and "
                                   "test_batch.bin; empty makes images",
                                   Resume::free),
        field<&ImagesConfig::num_images>("Images that are made to train with; a quarter as many are made to test with",
                                         at_least(4), Resume::free),
        field<&ImagesConfig::seed>("Start of the random numbers of the images that are made", Resume::free),
        field<&ImagesConfig::augment>("Train with random crops and flips of the images", Resume::must_match));
  }
};

/// Color images of 32 x 32 in ten classes.
class Images {
 public:
  Images(const ImagesConfig& config, Part part)
      : augment_{config.augment},
        records_{config.path.empty()
                     ? make_records(part == Part::train ? config.num_images : config.num_images / 4, config.seed, part)
                     : read_cifar10(config.path, part)} {}

  std::int64_t size() const { return records_.size(0); }

  /// Shapes  Inputs float32 [B, 3, 32, 32], targets int64 [B].
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    const auto records = chosen(indices);
    return batch_of(pixels(records), records);
  }

  /// A batch of training images. Each is cut out of the image with a black border of 4 pixels, at a random place, and
  /// half of them are mirrored. What is drawn for an image depends on the run's seed, the epoch and the image alone.
  ddpxx::Batch batch(std::span<const std::int64_t> indices, const ddpxx::BatchContext& context) const {
    if (!augment_) return batch(indices);
    constexpr std::int64_t kBorder = 4, kPlaces = 2 * kBorder + 1;
    const auto records = chosen(indices);
    const auto images = pixels(records), padded = at::constant_pad_nd(images, {kBorder, kBorder, kBorder, kBorder});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto drawn = static_cast<std::int64_t>(context.seed_of(indices[i]) % (kPlaces * kPlaces * 2));
      const auto row = static_cast<std::int64_t>(i);
      const auto crop = padded[row].narrow(1, drawn % kPlaces, kSide).narrow(2, drawn / kPlaces % kPlaces, kSide);
      images[row].copy_(drawn < kPlaces * kPlaces ? crop : crop.flip(2));
    }
    return batch_of(images, records);
  }

  /// For snapshots: a run does not resume on other images.
  ddpxx::Settings recorded() const {
    return {{"the images",
             std::to_string(size()) + " images, sum of bytes " + std::to_string(records_.sum().item<std::int64_t>()),
             ddpxx::Resume::must_match}};
  }

 private:
  at::Tensor chosen(std::span<const std::int64_t> indices) const {
    return records_.index_select(0, at::tensor(at::ArrayRef<std::int64_t>{indices.data(), indices.size()}));
  }
  static at::Tensor pixels(const at::Tensor& records) {
    return records.narrow(1, 1, kImageBytes).reshape({-1, 3, kSide, kSide});
  }
  static ddpxx::Batch batch_of(const at::Tensor& images, const at::Tensor& records) {
    // The mean and the spread of CIFAR-10's training images, in each color.
    const auto mean = at::tensor({0.4914F, 0.4822F, 0.4465F}).view({3, 1, 1}) * 255;
    const auto spread = at::tensor({0.2470F, 0.2435F, 0.2616F}).view({3, 1, 1}) * 255;
    return {(images.to(at::kFloat) - mean) / spread, records.select(1, 0).to(at::kLong), records.size(0)};
  }

  bool augment_;
  at::Tensor records_;
};
