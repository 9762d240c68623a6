// ddpxx/snapshot/start_name.hpp — the name of one start of a program, which tells its files from those of other starts.
#pragma once

#include <string>

namespace ddpxx {

/// Returns twelve random hexadecimal digits.
std::string draw_start_name();

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/start_name_inl.hpp>
#endif
