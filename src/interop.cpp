// src/interop.cpp — the part of ddpxx::core that comes from the room interop/: see ddpxx/core/inline.hpp.
