// ddpxx/config/path.hpp — paths of settings: `optimizer.learning_rate`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddpxx {

/// Splits `a.b.c`.
std::vector<std::string> path_segments(std::string_view path);

/// Joins the first `count` segments into a path.
std::string path_of(const std::vector<std::string>& parts, std::size_t count);

/// `group.name`; the name alone at the top level.
std::string path_in(std::string_view group, std::string_view name);

/// The group that holds `path`; empty at the top level.
std::string_view group_of(std::string_view path);

/// The last segment.
std::string_view name_of(std::string_view path);

/// True for `path` itself and for everything in it.
bool lies_in(std::string_view path, std::string_view group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/path_inl.hpp>
#endif
