// src/train.cpp — the part of ddpxx::core that comes from the room train/: see ddpxx/core/inline.hpp.
