// The device of a rank: how a GPU is named, and what rank 0 says where the CPU is taken although there is a GPU.
#include <filesystem>
#include <optional>
#include <stdlib.h>
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/gpu_name.hpp>
#include <ddpxx/comm/unused_gpu.hpp>
#include <ddpxx/core/error.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::device_test {
namespace {

/// Sets CUDA_VISIBLE_DEVICES for a test, or unsets it, and puts it back.
class VisibleDevices {
 public:
  explicit VisibleDevices(const char* value) {
    if (const char* set = ::getenv(kName)) before_ = set;
    write(value);
  }
  ~VisibleDevices() { write(before_ ? before_->c_str() : nullptr); }

 private:
  static constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  static void write(const char* value) {
    if (value != nullptr)
      ::setenv(kName, value, 1);
    else
      ::unsetenv(kName);
  }
  std::optional<std::string> before_;
};

TEST(UnusedGpu, IsNamedWithTheReason) {
  const VisibleDevices all{nullptr};
  const TemporaryFolder root;
  EXPECT_EQ(detail::unused_gpu_text(false, root.path()), "") << "a host without a GPU";
  root.file("proc/driver/nvidia/version", "");
  EXPECT_EQ(detail::unused_gpu_text(true, root.path()),
            "device=auto: this run computes on the CPU, although " + (root / "proc/driver/nvidia/version").string() +
                " shows a GPU: LibTorch cannot use it; look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
  root.file("dev/nvidiactl", "");
  EXPECT_EQ(detail::unused_gpu_text(false, root.path()),
            "device=auto: this run computes on the CPU, although " + (root / "dev/nvidiactl").string() +
                " shows a GPU: the program was built without the component ddpxx::cuda");
}

TEST(UnusedGpu, IsNotNamedWhereTheUserHidesAllGpus) {
  const TemporaryFolder root;
  root.file("dev/nvidiactl", "");
  for (const char* none : {"", "-1"}) {
    const VisibleDevices hidden{none};
    EXPECT_EQ(detail::unused_gpu_text(false, root.path()), "") << none;
  }
  const VisibleDevices first{"0"};
  EXPECT_NE(detail::unused_gpu_text(false, root.path()), "");
}

TEST(PickDevice, TakesTheCpuOfAProgramWithoutCuda) {
  EXPECT_EQ(pick_device("auto", {}), at::Device{at::kCPU});
  EXPECT_EQ(pick_device("cpu", {}), at::Device{at::kCPU});
  EXPECT_THROW(pick_device("cuda", {}), Error);
}

TEST(PickDevice, RefusesAWishThatIsNone) {
  for (const std::string wish : {"gpu", "cuda:1", ""}) {
    EXPECT_EQ(code_of([&] { pick_device(wish, {}); }), Errc::config);
    EXPECT_EQ(error_of([&] { pick_device(wish, {}); }), "device \"" + wish + "\" is none of auto, cpu, cuda");
  }
}

TEST(GpuName, HasTheMemoryInWholeGibibytes) {
  EXPECT_EQ(detail::gpu_text("NVIDIA H200", 150'121'545'728), "NVIDIA H200, 139 GiB");
}

TEST(GpuName, IsEmptyForACpuAndWhereTheDriverDoesNotKnowTheDevice) {
  EXPECT_EQ(gpu_name(at::kCPU), "");
  EXPECT_EQ(gpu_name({at::kCUDA, 100}), "");
}

TEST(Device, ARankTakesTheGpuWithItsLocalNumber) {
  for (const auto backend : {Backend::automatic, Backend::nccl}) {
    EXPECT_EQ(detail::gpu_of(LocalRank{0}, 8, backend), 0);
    EXPECT_EQ(detail::gpu_of(LocalRank{7}, 8, backend), 7);
    EXPECT_EQ(detail::gpu_of(LocalRank{8}, 8, backend), std::nullopt);
    EXPECT_EQ(detail::gpu_of(LocalRank{0}, 0, backend), std::nullopt);
  }
}

TEST(Device, RanksThatCommunicateOverGlooShareTheGpus) {
  EXPECT_EQ(detail::gpu_of(LocalRank{1}, 2, Backend::gloo), 1);
  EXPECT_EQ(detail::gpu_of(LocalRank{2}, 2, Backend::gloo), 0);
  EXPECT_EQ(detail::gpu_of(LocalRank{3}, 2, Backend::gloo), 1);
  EXPECT_EQ(detail::gpu_of(LocalRank{0}, 0, Backend::gloo), std::nullopt);
}

TEST(Backend, FollowsFromTheDeviceUnlessItIsChosen) {
  EXPECT_EQ(backend_for(Backend::automatic, at::kCPU), Backend::gloo);
  EXPECT_EQ(backend_for(Backend::automatic, at::kCUDA), Backend::nccl);
  EXPECT_EQ(backend_for(Backend::gloo, at::kCUDA), Backend::gloo);
  EXPECT_EQ(backend_for(Backend::nccl, at::kCUDA), Backend::nccl);
}

TEST(Backend, NcclIsRefusedOnACpu) {
  try {
    backend_for(Backend::nccl, at::kCPU);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(),
                 "comm.backend=nccl: NCCL connects GPUs, but this rank computes on the CPU; set the device to cuda, or "
                 "comm.backend to auto or gloo");
  }
}

TEST(Backend, SharedMemoryIsRefusedOnAGpu) {
  const auto choose = [] { backend_for(Backend::shared_memory, {at::kCUDA, 1}); };
  EXPECT_EQ(code_of(choose), Errc::config);
  EXPECT_EQ(error_of(choose),
            "comm.backend=shm: shared memory connects ranks on the CPU, but this rank computes on cuda:1; set the "
            "device to cpu, or comm.backend to auto or gloo");
}

TEST(Device, AnOnlyGpuIsThatOfEachRankThatSeesIt) {
  EXPECT_EQ(detail::gpu_of(LocalRank{0}, 1, Backend::automatic), 0);
  EXPECT_EQ(detail::gpu_of(LocalRank{3}, 1, Backend::automatic), 0);
}

}  // namespace
}  // namespace ddpxx::device_test
