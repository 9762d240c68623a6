// src/core.cpp — the part of ddpxx::core that comes from the room core/: see ddpxx/core/inline.hpp.
#include <ddpxx/core/file_inl.hpp>
#include <ddpxx/core/log_inl.hpp>
#include <ddpxx/core/setting_inl.hpp>
#include <ddpxx/core/suggest_inl.hpp>
#include <ddpxx/core/units_inl.hpp>
