// tests/fuzz/memory_file.hpp — a file in memory, whose content is replaced for each input.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include <ddpxx/core/descriptor.hpp>

namespace ddpxx {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : file_{::memfd_create(name, 0)} {
    if (!file_) std::abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }
  void write(std::string_view text) const {
    if (::ftruncate(file_.get(), 0) != 0) std::abort();
    if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<::ssize_t>(text.size())) std::abort();
  }

 private:
  Descriptor file_;
};

}  // namespace ddpxx
