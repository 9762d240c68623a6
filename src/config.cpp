// src/config.cpp — the part of ddpxx::core that comes from the room config/: see ddpxx/core/inline.hpp.
