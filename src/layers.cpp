// src/layers.cpp — the part of ddpxx::core that comes from the room layers/: see ddpxx/core/inline.hpp.
#include <ddpxx/layers/recompute_inl.hpp>
