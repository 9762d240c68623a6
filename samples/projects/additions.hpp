// additions.hpp — sums of two numbers as texts of digits, the data of the project adder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ddpxx/ddpxx.hpp>

struct AdditionsConfig {
  std::int64_t ndigit = 2;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&AdditionsConfig::ndigit>("Digits of each of the two numbers", between(1, 3), Resume::must_match));
  }
};

/// All sums of two numbers of n digits, in two parts. A sample is a text of 3n + 1 digits: 85 + 50 = 135 is 8550531,
/// with the sum from its last digit to its first, the order in which one adds. The model predicts each digit from those
/// before it, and only the digits of the sum count in the loss.
/// Source  minGPT's projects/adder.
class Additions {
 public:
  enum class Part { train, test };

  /// A fifth of all sums, or 500 of them, are for the test.
  Additions(const AdditionsConfig& config, Part part) : ndigit_{config.ndigit} {
    for (std::int64_t i = 0; i < ndigit_; ++i) limit_ *= 10;
    const auto num = limit_ * limit_, num_test = std::min<std::int64_t>(num / 5, 500);
    const auto order = at::randperm(num, at::detail::createCPUGenerator(/*seed_val=*/1337));
    numbers_ = part == Part::test ? order.narrow(0, 0, num_test) : order.narrow(0, num_test, num - num_test);
  }

  std::int64_t size() const { return numbers_.size(0); }
  std::int64_t ndigit() const { return ndigit_; }
  /// The last digit is not an input.
  std::int64_t block_size() const { return 3 * ndigit_; }
  static constexpr std::int64_t kVocabulary = 10;

  /// The numbers a and b of a sample.
  std::pair<std::int64_t, std::int64_t> summands(std::int64_t sample) const {
    const auto number = numbers_[sample].item<std::int64_t>();
    return {number / limit_, number % limit_};
  }

  /// The texts of samples.
  /// Shapes  int64 [samples, 3n + 1].
  at::Tensor texts(std::span<const std::int64_t> samples) const {
    std::vector<std::int64_t> digits;
    for (const auto sample : samples) {
      const auto [a, b] = summands(sample);
      for (const auto number : {a, b})
        for (auto unit = limit_ / 10; unit > 0; unit /= 10) digits.push_back(number / unit % 10);
      for (std::int64_t unit = 1; unit <= limit_; unit *= 10) digits.push_back((a + b) / unit % 10);
    }
    return at::tensor(digits).view({std::ssize(samples), 3 * ndigit_ + 1});
  }

  ddpxx::Batch batch(std::span<const std::int64_t> samples) const {
    const auto digits = texts(samples);
    auto targets = digits.narrow(1, 1, 3 * ndigit_).clone();
    targets.narrow(1, 0, 2 * ndigit_ - 1).fill_(-1);
    return {digits.narrow(1, 0, 3 * ndigit_), targets, std::ssize(samples) * (ndigit_ + 1)};
  }

 private:
  std::int64_t ndigit_;
  std::int64_t limit_ = 1;
  at::Tensor numbers_;  ///< a * limit + b for each sample.
};
