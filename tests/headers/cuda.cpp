// cuda.cpp — what ddpxx::cuda adds compiles.
#include <ddpxx/comm/nccl.hpp>
#include <ddpxx/ddpxx.hpp>
