// cuda.cpp — checks that the headers of ddpxx::cuda compile.
#include <ddpxx/comm/nccl.hpp>
#include <ddpxx/ddpxx.hpp>
#include <ddpxx/train/cuda_capture.hpp>
