// ddpxx/interop/pt_file.hpp — reads and writes the .pt files of Python's torch.save and torch.load.
// A .pt file is a zip archive with a pickle, which describes the value, and the bytes of each tensor's storage.
#pragma once

#include <filesystem>
#include <string>

#include <ddpxx/interop/pickle_value.hpp>

namespace ddpxx {

/// Reads a file that torch.save wrote. The tensors are on the CPU, in private memory mapped from the file, and share
/// storages as they did in Python.
/// Errors  `storage`, naming the file, for damage and for objects that cannot be read (see parse_pickle).
PickleValue read_pt(const std::filesystem::path& path);

/// Writes the file atomically, so that Python's torch.load reads it with its defaults. Tensors that share a storage
/// keep sharing it. As in Python, the whole storage of a view is written, so clone a small view of a large tensor
/// first.
/// Errors  `storage`, naming the file, if it cannot be written or a reader would refuse it.
void write_pt(const std::filesystem::path& path, const PickleValue& value);

/// Reads and writes a .pt file in memory. Messages call it `name`.
PickleValue unpack_pt(std::string bytes, const std::string& name);
std::string pack_pt(const PickleValue& value);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/pt_file_inl.hpp>
#endif
