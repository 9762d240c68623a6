// src/parallel.cpp — the part of ddpxx::core that comes from the room parallel/: see ddpxx/core/inline.hpp.
#include <ddpxx/parallel/same_model_inl.hpp>
#include <ddpxx/parallel/sync_batch_norm_inl.hpp>
