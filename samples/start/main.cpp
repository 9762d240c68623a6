// main.cpp — a model and a dataset of your own: a network that learns which of three curves a point belongs to.
//
//     start train=train.csv validation=validation.csv spawn=2
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

/// The points of a file with rows such as 0.31,-0.7,2: two coordinates, and the number of the curve, from 0.
class Points {
 public:
  static constexpr std::int64_t kCurves = 3;

  explicit Points(const std::string& path) {
    const auto refuse = [&](const std::string& why) { throw ddpxx::Error{ddpxx::Errc::data, path + ": " + why}; };
    std::ifstream file{path};
    std::vector<float> points;
    std::vector<std::int64_t> labels;
    for (std::string line; std::getline(file, line);) {
      std::istringstream row{line};
      float x = 0, y = 0;
      char comma = 0, second_comma = 0;
      std::int64_t label = 0;
      row >> x >> comma >> y >> second_comma >> label;
      const bool is_whole = row && comma == ',' && second_comma == ',' && (row >> std::ws).eof();
      if (!is_whole || label < 0 || label >= kCurves)
        refuse("line " + std::to_string(labels.size() + 1) + " is not x,y,label with a label below " +
               std::to_string(kCurves));
      points.insert(points.end(), {x, y});
      labels.push_back(label);
    }
    if (file.bad() || labels.empty()) refuse("it cannot be read or is empty: name a file of rows x,y,label");
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
        fc3{register_module("fc3", torch::nn::Linear(width, Points::kCurves))} {}

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
    const auto read = [&](const std::string& path) {  // if one rank cannot read its file, all end with the error
      return ddpxx::on_every_rank(group, ddpxx::Errc::data, [&] { return std::make_shared<const Points>(path); });
    };
    const auto train = read(config.train), validation = read(config.validation);
    Train trainer{group, net, train, config.trainer, record, {.validation = validation}};
    trainer.fit();
    group.leave();
  });
}
