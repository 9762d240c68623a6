// ddpxx/storage/storage_opener.hpp — how code that is compiled once opens a storage.
#pragma once

#include <memory>
#include <string>

#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Opens the storage at a location: open_storage, which a header-only part of the program passes on. What open_storage
/// can reach depends on the program, so that the library ddpxx::core must not call it.
using StorageOpener = std::unique_ptr<Storage> (*)(const std::string& place);

}  // namespace ddpxx
