// ddpxx/flat/hollow_storage.hpp — a storage that has a size but no memory.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace ddpxx {

/// Makes a storage of `bytes` without memory: reading or writing its tensors throws a c10::Error with `sentence`.
inline c10::Storage hollow_storage(std::size_t bytes, c10::Device device, std::string sentence) {
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, at::DataPtr{nullptr, device},
                                            /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(sentence));
  return c10::Storage{std::move(storage)};
}

}  // namespace ddpxx
