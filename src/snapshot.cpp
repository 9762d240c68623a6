// src/snapshot.cpp — the part of ddpxx::core that comes from the room snapshot/: see ddpxx/core/inline.hpp.
