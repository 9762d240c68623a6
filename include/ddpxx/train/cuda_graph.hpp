// ddpxx/train/cuda_graph.hpp — makes the StepCapture that records training steps as CUDA graphs.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include <ddpxx/core/error.hpp>
#ifdef USE_C10D_NCCL  // set by the component ddpxx::cuda
#include <ddpxx/train/cuda_capture.hpp>
#endif
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// Makes the StepCapture that records steps on `device` as CUDA graphs and replays them. A program assigns this
/// function to `TrainStep::Config::capture`.
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
