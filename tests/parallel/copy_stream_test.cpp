// The order in which copies beside the computing stream are started, recorded by a device that only writes it down.
#include <new>
#include <string>
#include <vector>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <gtest/gtest.h>

#include <ddpxx/parallel/copy_stream.hpp>

namespace ddpxx::copy_stream_test {
namespace {

using c10::Device, c10::Stream;

constexpr auto kRecorded = c10::DeviceType::PrivateUse1;
constexpr c10::StreamId kCompute = 0, kCopies = 7;

/// Stream 0 computes; stream 7 is the only one of the pool.
class RecordingGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static inline std::vector<std::string> log;
  static inline c10::StreamId current = kCompute;

  c10::DeviceType type() const override { return kRecorded; }
  Device exchangeDevice(Device device) const override { return device; }
  Device getDevice() const override { return {kRecorded, 0}; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }  // autograd starts no thread for it
  Stream getStream(Device device) const override { return Stream{Stream::UNSAFE, device, current}; }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return Stream{Stream::UNSAFE, device, kCopies}; }
  Stream exchangeStream(Stream stream) const override {
    const Stream before{Stream::UNSAFE, stream.device(), current};
    current = stream.id();
    return before;
  }
  void record(void** event, const Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new int{++events};
    log.push_back("record " + number(*event) + " on " + name(stream));
  }
  void block(void* event, const Stream& stream) const override {
    log.push_back(name(stream) + " waits for " + number(event));
  }
  void synchronizeStream(const Stream& stream) const override { log.push_back("the host waits for " + name(stream)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<int*>(event); }

 private:
  static inline int events = 0;
  static std::string number(const void* event) { return std::to_string(*static_cast<const int*>(event)); }
  static std::string name(const Stream& stream) { return stream.id() == kCompute ? "compute" : "copies"; }
};
TEST(CopyStream, CopiesRunBehindTheStreamThatComputesAndTheHostWaitsOnlyWhereItIsTold) {
  static const RecordingGuard guard;
  const c10::impl::DeviceGuardImplRegistrar registered{kRecorded, &guard};
  CopyStream copies{Device{kRecorded, 0}};
  auto& log = RecordingGuard::log;
  const auto copy = [&](const char* what) {
    return copies.run([&] {
      EXPECT_EQ(RecordingGuard::current, kCopies);
      log.emplace_back(what);
    });
  };
  const auto first = copy("copy a");
  const auto second = copy("copy b");
  EXPECT_EQ(RecordingGuard::current, kCompute);
  copies.order_after(first);
  copies.wait();
  EXPECT_EQ(log, (std::vector<std::string>{"record 1 on compute", "copies waits for 1", "copy a", "record 2 on copies",
                                           "record 3 on compute", "copies waits for 3", "copy b", "record 4 on copies",
                                           "compute waits for 2", "the host waits for copies"}));
}

TEST(CopyStream, IsNoLongerTheCurrentOneAfterWorkThatThrows) {
  static const RecordingGuard guard;
  const c10::impl::DeviceGuardImplRegistrar registered{kRecorded, &guard};
  CopyStream copies{Device{kRecorded, 0}};
  EXPECT_THROW(copies.run([] { throw std::bad_alloc{}; }), std::bad_alloc);
  EXPECT_EQ(RecordingGuard::current, kCompute);
}

TEST(CopyStream, WithoutADeviceOnlyCalls) {
  CopyStream copies;
  bool called = false;
  const auto mark = copies.run([&] { called = true; });
  EXPECT_TRUE(called);
  EXPECT_EQ(mark, nullptr);
  copies.order_after(mark);
  copies.wait();
}

}  // namespace
}  // namespace ddpxx::copy_stream_test
