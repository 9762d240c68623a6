// ddpxx/launch/agent/progress_page.hpp — the memory in which a rank notes its last step and its last collective.
#pragma once

#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/inherited_descriptor.hpp>
#include <ddpxx/core/rank_progress.hpp>

namespace ddpxx::detail {

/// Memory that a rank's processes share with its launcher. If the system does not give it, the rank runs without it.
class ProgressPage {
 public:
  ProgressPage() {
    Descriptor made{::memfd_create("ddpxx-progress", MFD_CLOEXEC)};
    // Takes the memory now: where none is left, a rank that writes to it later would end by SIGBUS.
    if (!made || ::posix_fallocate(made.get(), 0, sizeof(RankProgress)) != 0) return;
    void* const memory = ::mmap(nullptr, sizeof(RankProgress), PROT_READ | PROT_WRITE, MAP_SHARED, made.get(), 0);
    if (memory == MAP_FAILED) return;
    memory_.reset(static_cast<RankProgress*>(memory));
    // Scripts use low numbers for their own files.
    if (Descriptor high{::fcntl(made.get(), F_DUPFD_CLOEXEC, 100)}) made = std::move(high);
    descriptor_ = std::move(made);
  }

  /// Descriptor that the rank inherits, under this number; it may be empty. The launcher closes it once the rank has
  /// started.
  Descriptor& descriptor() noexcept { return descriptor_; }
  /// `NAME=value`, for the environment of the rank, if there is a descriptor.
  std::string variable() const { return descriptor_variable(kProgressVariable, descriptor_.get()); }

  /// None if there is no memory.
  const RankProgress* progress() const noexcept { return memory_.get(); }

 private:
  struct Unmap {
    void operator()(RankProgress* memory) const noexcept { ::munmap(memory, sizeof(RankProgress)); }
  };

  Descriptor descriptor_;
  std::unique_ptr<RankProgress, Unmap> memory_;
};

}  // namespace ddpxx::detail
