#include <variant>

#include "base.hpp"

struct NeverCalls {
  struct Config {};
  NeverCalls(const Config&, ddpxx::Group&) {}
  void attach(ddpxx::FlatModel&) {}
  std::span<const ddpxx::Slice> slices() const { return {}; }
  int runner() { return 0; }
  void begin_backward(ddpxx::Sync) {}
  void finish_backward() {}
  at::Tensor sum_over_shards(at::Tensor value) const { return value; }
  auto gathered() { return std::monostate{}; }
};
static_assert(ddpxx::explain_strategy<NeverCalls>());
