// src/join.cpp — the part of ddpxx::core that comes from the room launch/ and needs LibTorch: see
// ddpxx/core/inline.hpp.
#include <ddpxx/launch/join_inl.hpp>
