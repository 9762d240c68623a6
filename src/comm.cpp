// src/comm.cpp — the part of ddpxx::core that comes from the room comm/: see ddpxx/core/inline.hpp.
