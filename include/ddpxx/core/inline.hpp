// ddpxx/core/inline.hpp — marks the functions that the library ddpxx::core compiles once for a program.
//
// ddpxx is header-only. A program that links the target ddpxx::core does not compile the functions that are not
// templates: DDPXX_CORE is defined for it, and their definitions are in that library. A header with such functions only
// declares them, and ends with
//
//     #ifndef DDPXX_CORE
//     #include <ddpxx/room/noun_inl.hpp>
//     #endif
//
// The file noun_inl.hpp defines each of them as `DDPXX_INLINE`, and src/room.cpp includes it. A virtual function is
// declared `DDPXX_INLINE` in its class as well: the compiler would otherwise make the virtual table of the class, and
// all functions in it, in each file of a header-only program.
//
// Failpoints are compiled into functions of both kinds, so that DDPXX_FAILPOINTS is for header-only programs.
#pragma once

#ifdef DDPXX_CORE
#ifdef DDPXX_FAILPOINTS
#error "ddpxx::core is compiled without failpoints: link ddpxx::ddpxx where DDPXX_FAILPOINTS is defined"
#endif
#define DDPXX_INLINE
#else
#define DDPXX_INLINE inline
#endif
