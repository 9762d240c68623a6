// ddpxx/train/same_run.hpp — were all ranks started to do the same?
#pragma once

#include <string>
#include <vector>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Compares the settings by which ranks must act alike, and the versions they are built with; one that differs would
/// leave some waiting for the others.
/// Ranks   Collective; every rank comes to the same verdict.
/// Errors  `peer` naming each setting that differs, with its values and the ranks that have them. Where ranks differ in
///         a part such as `strategy`, the settings below it are not named one by one.
void check_same_run(const Settings& settings, const Group& group);

namespace detail {

/// The versions of the two libraries, which decide what the ranks send each other.
std::string versions_text();

/// `1 on rank 0, 2 on ranks 1, 3`
std::string by_value(const std::vector<std::string>& values);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/same_run_inl.hpp>
#endif
