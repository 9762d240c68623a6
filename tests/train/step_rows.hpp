// tests/train/step_rows.hpp — an observer that keeps what a run reports of its steps.
#pragma once

#include <string>
#include <vector>

#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

class StepRows : public Observer {
 public:
  std::string name() const override { return "StepRows"; }
  Verdict on_step(const StepDone& row) override {
    rows.push_back(row);
    return Verdict::go_on;
  }
  std::vector<StepDone> rows;
};

}  // namespace ddpxx
