// The units into which FSDP puts the layers of a model.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/parallel/layer_units.hpp>

namespace ddpxx::layer_units_test {
namespace {

using testing::ElementsAre;

struct Block : torch::nn::Module, Layer {
  explicit Block(std::int64_t size) { register_parameter("weight", at::ones({size})); }
};

/// Five layers of 100 bytes, and a parameter of the root.
struct Net : torch::nn::Module {
  Net() {
    register_parameter("scale", at::ones({1}));
    for (int i = 0; i < 5; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(25)));
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

/// The unit of each layer of `net`, in order.
std::vector<std::size_t> units_of(const LayerUnits& units, const Net& net) {
  std::vector<const Layer*> layers;
  for (const auto& block : net.blocks) layers.push_back(block.get());
  std::vector<std::size_t> all;
  for (const auto& call : units.calls_of(layers)) all.push_back(call.unit);
  return all;
}

TEST(LayerUnits, HoldLayersUntilTheyHaveEnoughBytes) {
  Net net;
  const FlatModel flat{net};
  EXPECT_THAT(units_of(LayerUnits{flat, 0}, net), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(units_of(LayerUnits{flat, 100}, net), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(units_of(LayerUnits{flat, 101}, net), ElementsAre(1, 1, 2, 2, 3));
  const LayerUnits all{flat, 1000};
  EXPECT_THAT(units_of(all, net), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_EQ(all.size(), 2U) << "the root, and the layers";
}

TEST(LayerUnits, KeepALayerWithNothingToTrainApart) {
  Net net;
  for (auto& parameter : net.blocks[2]->parameters()) parameter.requires_grad_(false);
  const FlatModel flat{net};
  const LayerUnits units{flat, 1000};
  EXPECT_THAT(units_of(units, net), ElementsAre(1, 1, 2, 3, 3));
  ASSERT_EQ(flat.frozen().size(), 1U);
  EXPECT_EQ(units.in_units(flat.frozen())[0].unit, 2);
}

TEST(LayerUnits, NumberParametersAndCalls) {
  Net net;
  const FlatModel flat{net};
  const LayerUnits units{flat, 101};
  std::vector<std::pair<std::string, int>> numbered;
  for (const auto& parameter : units.in_units(flat.trainable())) numbered.emplace_back(parameter.name, parameter.unit);
  EXPECT_THAT(numbered,
              testing::UnorderedElementsAre(std::pair{"scale", FlatModel::kRoot}, std::pair{"block0.weight", 1},
                                            std::pair{"block1.weight", 1}, std::pair{"block2.weight", 2},
                                            std::pair{"block3.weight", 2}, std::pair{"block4.weight", 3}));
  const Block other{1};
  const std::vector<const Layer*> called{net.blocks[3].get(), &other, net.blocks[0].get()};
  const auto calls = units.calls_of(called);
  ASSERT_EQ(calls.size(), 2U) << "a layer of another model has no unit";
  EXPECT_TRUE(calls[0].unit == 2 && calls[0].layer == 4);
  EXPECT_TRUE(calls[1].unit == 1 && calls[1].layer == 1);
}

TEST(LayerUnits, HaveNamesForErrors) {
  Net net;
  const LayerUnits units{FlatModel{net}, 101};
  EXPECT_EQ(units.name_of(0), "the root");
  EXPECT_EQ(units.name_of(1), "layers 1 to 2");
  EXPECT_EQ(units.name_of(3), "layer 5");
}

}  // namespace
}  // namespace ddpxx::layer_units_test
