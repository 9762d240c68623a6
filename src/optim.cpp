// src/optim.cpp — the part of ddpxx::core that comes from the room optim/: see ddpxx/core/inline.hpp.
#include <ddpxx/optim/lamb_inl.hpp>
#include <ddpxx/optim/muon_inl.hpp>
