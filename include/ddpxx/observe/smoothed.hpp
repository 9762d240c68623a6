// ddpxx/observe/smoothed.hpp — a number that changes with each step, as a moving average.
#pragma once

namespace ddpxx {

/// An exponential moving average in which the newest value has a weight of 1/20. The first values count as in an
/// ordinary mean, so that the average is right from the first one on.
class Smoothed {
 public:
  void add(double value) {
    static constexpr double kNewest = 0.05;
    sum_ += kNewest * (value - sum_);
    weight_ += kNewest * (1.0 - weight_);
  }
  /// 0 before the first value.
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0.0; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace ddpxx
