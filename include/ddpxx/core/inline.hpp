// ddpxx/core/inline.hpp — marks the functions that the library ddpxx::core compiles once for a program.
//
// ddpxx is header-only. A program that links the target ddpxx::core does not compile the functions that are no templates:
// DDPXX_CORE is defined for it, and their definitions are in that library. A header with such functions only declares
// them, and ends with
//
//     #ifndef DDPXX_CORE
//     #include <ddpxx/room/noun_inl.hpp>
//     #endif
//
// The file noun_inl.hpp defines each of them as `DDPXX_INLINE`, and src/room.cpp includes it.
#pragma once

#ifdef DDPXX_CORE
#define DDPXX_INLINE
#else
#define DDPXX_INLINE inline
#endif
