// ddpxx/comm/reduce.hpp — the operations by which an all-reduce combines the values of the ranks.
#pragma once

namespace ddpxx {

enum class Reduce { sum, min, max };

}  // namespace ddpxx
