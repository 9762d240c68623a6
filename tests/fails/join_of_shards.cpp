#include <ddpxx/parallel/join.hpp>
#include <ddpxx/parallel/zero.hpp>

inline void join_of_shards(ddpxx::ZeRO1& strategy) { ddpxx::Join join{strategy}; }
