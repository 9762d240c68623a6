#include <ddpxx/parallel/data_parallel.hpp>

struct Whole {
  at::Tensor inputs;
};
struct Uncut {
  at::Tensor forward(const Whole& batch) { return batch.inputs; }
};
at::Tensor use(ddpxx::DataParallel& strategy, Uncut& model, const Whole& batch) {
  return strategy.forward(model, batch, [](auto& m, auto&, const auto& part) { return m.forward(part); });
}
