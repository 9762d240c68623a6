// ddpxx/observe/memory.hpp — how much memory this process has needed.
#pragma once

#include <cstdint>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// The most bytes of memory that were ever resident for this process; 0 where /proc does not tell.
std::int64_t peak_resident_bytes();

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/memory_inl.hpp>
#endif
