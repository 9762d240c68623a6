// The parts of samples/cnn: what is read from files, what is drawn for an image, and the network under FSDP.
#include "../../samples/cnn/images.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/testing.hpp>

#include "../../samples/cnn/resnet.hpp"
#include "../temporary_folder.hpp"

namespace images_test {
namespace {

void write(const std::filesystem::path& path, const at::Tensor& bytes) {
  std::ofstream{path, std::ios::binary}.write(static_cast<const char*>(bytes.contiguous().const_data_ptr()),
                                              bytes.numel());
}

at::Tensor random_records(std::int64_t num_images) {
  const auto labels = at::arange(num_images).remainder(kClasses).to(at::kByte).unsqueeze(1);
  return at::cat({labels, at::randint(256, {num_images, kImageBytes}, at::kByte)}, 1);
}

/// The bytes of the images of a batch.
at::Tensor bytes_of(const ddpxx::Batch& batch) {
  const auto mean = at::tensor({0.4914, 0.4822, 0.4465}).view({3, 1, 1});
  const auto spread = at::tensor({0.2470, 0.2435, 0.2616}).view({3, 1, 1});
  return ((batch.inputs * spread + mean) * 255).round().to(at::kByte);
}

TEST(Cifar10, IsReadImageByImageFromItsFilesInOrder) {
  const TemporaryFolder folder;
  const auto records = random_records(33);
  write(folder / "data_batch_1.bin", records.narrow(0, 0, 10));
  write(folder / "data_batch_2.bin", records.narrow(0, 10, 12));
  for (const int number : {3, 4, 5})
    write(folder / ("data_batch_" + std::to_string(number) + ".bin"), records.narrow(0, 19 + number, 1));
  write(folder / "test_batch.bin", records.narrow(0, 25, 8));
  const ImagesConfig config{.path = (folder / "").string()};
  const Images train{config, Part::train}, test{config, Part::test};
  ASSERT_EQ(train.size(), 25);
  ASSERT_EQ(test.size(), 8);
  const auto batch = train.batch(std::vector<std::int64_t>{21, 3});
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({1, 3}, at::kLong)));
  EXPECT_EQ(batch.num_tokens, 2);
  // Within a record, red comes first, and a row of pixels after the other.
  EXPECT_EQ(bytes_of(batch)[0][1][2][5].item<int>(), records[21][1 + 1024 + 2 * 32 + 5].item<int>());
  EXPECT_TRUE(at::equal(bytes_of(batch)[1].flatten(), records[3].narrow(0, 1, kImageBytes)));
  EXPECT_TRUE(at::equal(bytes_of(test.batch(std::vector<std::int64_t>{0}))[0].flatten(),
                        records[25].narrow(0, 1, kImageBytes)));
}

TEST(Cifar10, WrongFilesAreRefusedWithTheirNameAndWhatToDo) {
  const TemporaryFolder folder;
  const auto path = (folder / "data_batch_1.bin").string();
  const auto error = [&] {
    try {
      read_cifar10(folder / "", Part::train);
    } catch (const ddpxx::Error& refused) {
      EXPECT_EQ(refused.code(), ddpxx::Errc::data);
      return std::string{refused.what()};
    }
    return std::string{};
  };
  EXPECT_EQ(error(),
            path + ": No such file or directory: unpack cifar-10-binary.tar.gz, and set data.path to its folder");
  const auto records = random_records(4);
  for (const int number : {1, 3, 4, 5}) write(folder / ("data_batch_" + std::to_string(number) + ".bin"), records);
  EXPECT_EQ(error(), (folder / "data_batch_2.bin").string() +
                         ": No such file or directory: unpack cifar-10-binary.tar.gz, and set data.path to its folder");
  write(folder / "data_batch_2.bin", records);
  EXPECT_EQ(error(), "");
  for (const std::int64_t bytes : {std::int64_t{0}, kRecordBytes - 1, 2 * kRecordBytes + 100}) {
    write(path, records.flatten().narrow(0, 0, bytes));
    EXPECT_EQ(error(), path + ": " + std::to_string(bytes) +
                           " bytes are not a whole number of records of 3073 bytes: unpack cifar-10-binary.tar.gz "
                           "again, the binary version of CIFAR-10");
  }
  records[2][0] = 77;
  write(path, records);
  EXPECT_EQ(error(), path +
                         ": record 2 has the label 77, which is not between 0 and 9: take the binary version of "
                         "CIFAR-10");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(error(), path + ": Is a directory: unpack cifar-10-binary.tar.gz, and set data.path to its folder");
}

TEST(MadeImages, DependOnSeedAndPartAlone) {
  EXPECT_TRUE(at::equal(make_records(20, 1, Part::train), make_records(20, 1, Part::train)));
  EXPECT_FALSE(at::equal(make_records(20, 1, Part::train), make_records(20, 1, Part::test)));
  EXPECT_FALSE(at::equal(make_records(20, 1, Part::train), make_records(20, 2, Part::train)));
}

TEST(Augmentation, TakesEachPlaceOfTheBorderedImageAndMirrorsHalfOfThem) {
  const Images images{{.num_images = 12}, Part::train};
  std::set<std::int64_t> rows, columns;
  int mirrored = 0, drawn = 0;
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const std::vector<std::int64_t> index{i};
    const auto padded = at::constant_pad_nd(bytes_of(images.batch(index))[0], {4, 4, 4, 4});
    const auto windows = padded.unfold(1, 32, 1).unfold(2, 32, 1);  // color, place of the row, of the column, ...
    const auto places = windows.permute({1, 2, 0, 3, 4});
    for (std::int64_t epoch = 0; epoch < 20; ++epoch, ++drawn) {
      const auto image = bytes_of(images.batch(index, {.seed = 3, .epoch = epoch}))[0];
      const auto plain = (places == image).flatten(2).all(2).nonzero();
      const auto flipped = (places == image.flip(2)).flatten(2).all(2).nonzero();
      ASSERT_EQ(plain.size(0) + flipped.size(0), 1);
      mirrored += static_cast<int>(flipped.size(0));
      const auto place = plain.size(0) == 1 ? plain[0] : flipped[0];
      rows.insert(place[0].item<std::int64_t>());
      columns.insert(place[1].item<std::int64_t>());
    }
  }
  EXPECT_EQ(rows.size(), 9U);
  EXPECT_EQ(columns.size(), 9U);
  EXPECT_NEAR(static_cast<double>(mirrored) / drawn, 0.5, 0.15);
}

TEST(Augmentation, DependsOnSeedEpochAndImageAlone) {
  const Images images{{.num_images = 12}, Part::train}, plain{{.num_images = 12, .augment = false}, Part::train};
  const std::vector<std::int64_t> some{7, 2, 9};
  const ddpxx::BatchContext context{.seed = 3, .epoch = 1};
  const auto together = images.batch(some, context);
  for (std::size_t i = 0; i < some.size(); ++i)
    EXPECT_TRUE(at::equal(together.inputs[static_cast<std::int64_t>(i)],
                          images.batch(std::vector<std::int64_t>{some[i]}, context).inputs[0]));
  EXPECT_FALSE(at::equal(together.inputs, images.batch(some, {.seed = 3, .epoch = 2}).inputs));
  EXPECT_FALSE(at::equal(together.inputs, images.batch(some, {.seed = 4, .epoch = 1}).inputs));
  EXPECT_TRUE(at::equal(plain.batch(some, context).inputs, images.batch(some).inputs));
}

/// The losses of four steps, without clipping.
template <class Strategy>
std::vector<double> losses(const std::string& metrics) {
  ddpxx::spawn_ranks(2, [&](ddpxx::Group& group) {
    using Train = ddpxx::Trainer<ResNet, Images, ddpxx::SGD, ddpxx::Float32, Strategy>;
    const typename Train::Config config{
        .batch_size = 4,
        .training = {.max_steps = 4, .max_epochs = 0, .grad_norm_clip = 0, .metrics = metrics},
        .optimizer = {.learning_rate = 0.05, .momentum = 0.9}};
    const auto images = std::make_shared<const Images>(ImagesConfig{.num_images = 32}, Part::train);
    const auto net = ddpxx::make_model<ResNet>(1, at::kCPU, ResNetConfig{.width = 4}, kClasses, group);
    Train{group, net, images, config}.fit();
  });
  std::vector<double> found;
  std::ifstream file{metrics};
  for (std::string line; std::getline(file, line);) found.push_back(nlohmann::json::parse(line).at("loss"));
  return found;
}

TEST(ResNet, TrainsUnderFSDPAsUnderDDPBitForBit) {
  const TemporaryFolder folder;
  const auto ddp = losses<ddpxx::DDP>((folder / "ddp.jsonl").string());
  EXPECT_EQ(ddp.size(), 4U);
  EXPECT_EQ(losses<ddpxx::Recompute<ddpxx::FSDP>>((folder / "fsdp.jsonl").string()), ddp);
}

}  // namespace
}  // namespace images_test
