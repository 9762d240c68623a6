// src/launch.cpp — the part of ddpxx::core that comes from the room launch/: see ddpxx/core/inline.hpp.
