// ddpxx/train/cuda_graph.hpp — steps as CUDA graphs, in programs that use GPUs.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include <ddpxx/core/error.hpp>
#ifdef USE_C10D_NCCL  // set by the component ddpxx::cuda
#include <ddpxx/train/cuda_capture.hpp>
#endif
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// What `TrainStep::Config::capture` is set to, so that steps on a GPU are captured as CUDA graphs.
/// Errors  `config` for another device, and in a program that does not link ddpxx::cuda.
inline std::unique_ptr<StepCapture> make_cuda_capture(at::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) return std::make_unique<CUDACapture>(device);
#endif
  throw Error{Errc::config, "training.cuda_graph: the model is on " + device.str() +
                                ", and a CUDA graph needs a GPU and a program that links ddpxx::cuda: set "
                                "training.cuda_graph=false"};
}

}  // namespace ddpxx
