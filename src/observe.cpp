// src/observe.cpp — the part of ddpxx::core that comes from the room observe/: see ddpxx/core/inline.hpp.
