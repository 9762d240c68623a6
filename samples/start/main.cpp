// main.cpp — a model and a dataset of your own: a network that learns which of three curves a point belongs to.
//
//     start train=train.csv validation=validation.csv spawn=2
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

/// The points of a file with rows such as 0.31,-0.7,2: two coordinates, and the number of the curve.
class Points {
 public:
  explicit Points(const std::string& path) {
    std::ifstream file{path};
    if (!file) throw ddpxx::Error{ddpxx::Errc::data, "cannot read \"" + path + "\": name a file of rows x,y,label"};
    std::vector<float> points;
    std::vector<std::int64_t> labels;
    float x = 0, y = 0;
    std::int64_t label = 0;
    for (char comma = 0; file >> x >> comma >> y >> comma >> label; labels.push_back(label))
      points.insert(points.end(), {x, y});
    if (!file.eof())
      throw ddpxx::Error{ddpxx::Errc::data, path + ": row " + std::to_string(labels.size() + 1) + " is not x,y,label"};
    points_ = at::tensor(points).view({-1, 2});
    labels_ = at::tensor(labels);
  }

  std::int64_t size() const { return labels_.size(0); }
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(at::ArrayRef<std::int64_t>{indices.data(), indices.size()});
    return {points_.index_select(0, rows), labels_.index_select(0, rows), rows.numel()};
  }

 private:
  at::Tensor points_, labels_;
};

/// Three linear layers.
struct Net : torch::nn::Module {
  explicit Net(std::int64_t width)
      : fc1{register_module("fc1", torch::nn::Linear(2, width))},
        fc2{register_module("fc2", torch::nn::Linear(width, width))},
        fc3{register_module("fc3", torch::nn::Linear(width, 3))} {}

  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    const auto logits = fc3(at::relu(fc2(at::relu(fc1(batch.inputs)))));
    return {at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum),
            {{"accuracy", logits.argmax(1).eq(batch.targets).sum()}}};
  }
  torch::nn::Linear fc1, fc2, fc3;
};

using Train = ddpxx::Trainer<Net, Points, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;

struct Config {
  std::string train = "train.csv";
  std::string validation = "validation.csv";
  std::int64_t width = 64;
  Train::Config trainer{.batch_size = 32, .training = {.max_epochs = 20, .eval_every = 100}};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::train>("File of the points to train on"),
                  field<&Config::validation>("File of the points to measure the accuracy with"),
                  field<&Config::width>("Width of the hidden layers", at_least(1), Resume::must_match),
                  flatten<&Config::trainer>());
  }
};

int main(int argc, char** argv) {
  ddpxx::run_program("start", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.trainer.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto net = ddpxx::make_model<Net>(training.seed, group.device(), config.width);
    const auto train = std::make_shared<const Points>(config.train);
    const auto validation = std::make_shared<const Points>(config.validation);
    Train trainer{group, net, train, config.trainer, record, {.validation = validation}};
    trainer.fit();
    group.leave();
  });
}
