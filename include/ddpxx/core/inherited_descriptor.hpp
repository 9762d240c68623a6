// ddpxx/core/inherited_descriptor.hpp — a descriptor that a rank inherits from its launcher, named in its environment.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>

#include <ddpxx/core/environment.hpp>

namespace ddpxx::detail {

/// An open descriptor of this process, and its status by fstat.
struct InheritedDescriptor {
  int number = -1;
  struct ::stat status = {};
};

/// `NAME=DESCRIPTOR:INODE`, for the environment of a rank that inherits `descriptor` under its number.
inline std::string descriptor_variable(const char* name, int descriptor) {
  struct ::stat status {};
  ::fstat(descriptor, &status);
  return std::string{name} + '=' + std::to_string(descriptor) + ':' + std::to_string(status.st_ino);
}

/// The descriptor that the variable `name` names; none if the variable is not set, or the descriptor has another inode.
/// A program that the rank has started may have closed the descriptor and opened another file under its number; that
/// file has another inode.
inline std::optional<InheritedDescriptor> inherited_descriptor(const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  InheritedDescriptor inherited;
  std::uint64_t inode = 0;
  const char* const end = text->data() + text->size();
  const auto first = std::from_chars(text->data(), end, inherited.number);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return std::nullopt;
  if (std::from_chars(first.ptr + 1, end, inode).ec != std::errc{}) return std::nullopt;
  if (::fstat(inherited.number, &inherited.status) != 0 || inherited.status.st_ino != inode) return std::nullopt;
  return inherited;
}

}  // namespace ddpxx::detail
