// src/flat.cpp — the part of ddpxx::core that comes from the room flat/: see ddpxx/core/inline.hpp.
#include <ddpxx/flat/arena_inl.hpp>
#include <ddpxx/flat/flat_model_inl.hpp>
