// ddpxx/train/cuda_capture.hpp — records the operations of a step as a CUDA graph. Needs the component ddpxx::cuda.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// Steps run on a stream of their own, since CUDA's default stream cannot be captured. A graph keeps the memory that
/// its operations have taken, and the random numbers of a replay follow those of the step before.
class CUDACapture : public StepCapture {
 public:
  explicit CUDACapture(at::Device device)
      : stream_{c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())} {}

  void run(const std::function<void()>& work) override {
    const c10::Stream outside = c10::cuda::getCurrentCUDAStream(stream_.device_index());
    order(outside, stream_);
    const c10::cuda::CUDAStreamGuard guard{stream_};
    try {
      work();
    } catch (...) {
      try {
        order(stream_, outside);
      } catch (const c10::Error&) {
        // After an error of the device no stream works any more; the error says so.
      }
      throw;
    }
    order(stream_, outside);
  }

  Replay capture(const std::function<void()>& work) override {
    stream_.synchronize();
    const auto graph = std::make_shared<at::cuda::CUDAGraph>();
    try {
      // Other threads may wait for the GPU meanwhile, as those of NCCL and of a snapshot do.
      graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      end_after(graph, work);
    } catch (const c10::Error& error) {
      // CUDA's messages say so if an operation cannot be captured: "operation not permitted when stream is capturing".
      if (std::string_view{error.what_without_backtrace()}.find("captur") == std::string_view::npos) throw;
      throw Error{Errc::config,
                  "training.cuda_graph: a step of this model cannot be captured, because the host waits for the GPU in "
                  "it or it uses another stream: look in the model for item(), nonzero() and copies to the CPU, or set "
                  "training.cuda_graph=false"}
          .with("cause", error.what_without_backtrace());
    }
    const auto replay = [graph] { graph->replay(); };
    replay();  // so far the operations have been recorded only
    return replay;
  }

 private:
  /// A stream that is left in capture would refuse all that follows.
  static void end_after(const std::shared_ptr<at::cuda::CUDAGraph>& graph, const std::function<void()>& work) {
    try {
      work();
      graph->capture_end();
    } catch (...) {
      try {
        graph->capture_end();
      } catch (const std::exception&) {
        forget_failed(graph);  // the error that follows says why
      }
      throw;
    }
  }
  /// After a capture that cannot end LibTorch's allocators still have a function that refers to the graph, and the
  /// random generator of the GPU draws for captured operations only. So the graph is never freed, and the generator
  /// gets a state like that before.
  static void forget_failed(const std::shared_ptr<at::cuda::CUDAGraph>& graph) {
    static_cast<void>(new std::shared_ptr<at::cuda::CUDAGraph>{graph});
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
    auto& own = *generator.get<at::CUDAGeneratorImpl>();
    const std::lock_guard lock{own.mutex_};
    auto state = c10::make_intrusive<at::CUDAGeneratorState>(own.current_seed(), own.philox_offset_per_thread());
    own.graphsafe_set_state(c10::make_intrusive<at::CUDAGeneratorImpl>(generator.device().index(), std::move(state)));
  }
  static void order(const c10::Stream& before, const c10::Stream& after) {
    c10::Event event{c10::DeviceType::CUDA};
    event.record(before);
    event.block(after);
  }

  c10::cuda::CUDAStream stream_;
};

}  // namespace ddpxx
