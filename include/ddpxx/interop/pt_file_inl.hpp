// ddpxx/interop/pt_file_inl.hpp — the definitions of pt_file.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/mapped_file.hpp>
#include <ddpxx/interop/pickle_reader.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/pickle_writer.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/zip_archive.hpp>
#include <ddpxx/snapshot/quotes.hpp>
#include <ddpxx/snapshot/tensor_of_bytes.hpp>

namespace ddpxx {

namespace detail {

/// Returns a record as a tensor, which keeps `owner` alive or is a copy: see tensor_of_bytes.
inline at::Tensor storage_in(std::span<std::byte> record, const PickledStorage& storage,
                             const std::shared_ptr<void>& owner) {
  const auto item = at::elementSize(storage.dtype);
  if (record.size() % item != 0 || record.size() / item != static_cast<std::size_t>(storage.num_elements))
    refuse_file("the storage " + in_quotes(storage.key) + " has " + std::to_string(record.size()) +
                " bytes, which are not " + std::to_string(storage.num_elements) + " of " + at::toString(storage.dtype));
  return tensor_of_bytes(record, storage.dtype, {storage.num_elements}, owner, "the storage " + in_quotes(storage.key));
}

inline PickleValue read_archive(std::span<std::byte> bytes, const std::shared_ptr<void>& owner) {
  constexpr std::string_view kOldFront = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (text.starts_with(kOldFront))
    refuse_file("it is in the format from before PyTorch 1.6; load and save it once with a newer one");
  const auto records = read_zip(bytes);
  // All records are in one folder, which has the file's name from when it was written.
  std::string folder;
  for (const auto& [name, content] : records)
    if (const auto slash = name.find('/'); name.ends_with("/data.pkl") && slash + 9 == name.size())
      folder = name.substr(0, slash + 1);
  const auto record = [&](const std::string& name) {
    const auto found = records.find(folder + name);
    if (found == records.end()) refuse_file("it lacks the record " + in_quotes(name));
    return found->second;
  };
  const auto as_text = [](std::span<std::byte> content) {
    return std::string_view{reinterpret_cast<const char*>(content.data()), content.size()};
  };
  const auto pickle = as_text(record("data.pkl"));
  if (records.contains(folder + "constants.pkl"))
    refuse_file("it is a TorchScript program; save the state_dict() of the module instead");
  if (records.contains(folder + "byteorder") && as_text(record("byteorder")) != "little")
    refuse_file("it was written by a big-endian machine");
  return parse_pickle(
      pickle, [&](const PickledStorage& storage) { return storage_in(record("data/" + storage.key), storage, owner); });
}

/// Throws the error about a file that could not be read because of `cause`: a lack of memory says nothing about the
/// file.
[[noreturn]] inline void refuse_pt(const std::string& name, const std::exception& cause) {
  if (auto error = as_error(cause, Errc::storage); error.code() == Errc::memory) throw error.with("file", name);
  throw Error{Errc::storage, name + " is damaged, or no .pt file that ddpxx reads: " + first_line(cause)};
}

/// The storages of a value, each once. A storage that is used as two types counts as two: in a file each has one type.
class StorageTable {
 public:
  std::string name(const at::Tensor& tensor) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto [found, added] = keys_.try_emplace({storage, tensor.scalar_type()}, tensors_.size());
    if (added) tensors_.push_back(tensor.detach());
    return std::to_string(found->second);
  }
  const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }

 private:
  std::map<std::pair<const void*, at::ScalarType>, std::size_t> keys_;
  std::vector<at::Tensor> tensors_;
};

/// The content of a file: the pickle, and the tensors whose storages it refers to.
struct PtArchive {
  std::string pickle;
  StorageTable storages;
};

inline PtArchive plan_archive(const PickleValue& value, const std::string& operation) {
  PtArchive archive;
  try {
    archive.pickle = print_pickle(value, [&](const at::Tensor& tensor) { return archive.storages.name(tensor); });
    if (archive.pickle.size() > kMaxPickleBytes) refuse_file("the pickle would have more than 64 MiB");
  } catch (const Error& error) {
    throw Error{Errc::storage, operation + ": " + error.what()};
  }
  return archive;
}

/// Returns an upper bound of the archive's size in bytes.
inline std::size_t max_bytes_of(const PtArchive& archive) {
  constexpr std::size_t kFrame = 1024;  // for a record's two headers and its alignment
  auto bytes = 8 * kFrame + archive.pickle.size();
  for (const auto& tensor : archive.storages.tensors())
    bytes += kFrame + static_cast<std::size_t>(storage_length(tensor) * tensor.element_size());
  return bytes;
}

/// Writes the archive through `write(Bytes)`, from start to end. An exception from `write` is caught before it reaches
/// LibTorch's writer, which would end the program, and is thrown again here.
template <class Write>
void write_archive(const PtArchive& archive, Write&& write) {
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter writer{[&](const void* data, std::size_t size) {
    try {
      if (!failure) write(Bytes{static_cast<const std::byte*>(data), size});
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  }};
  const auto record = [&](const std::string& name, const void* data, std::size_t size) {
    writer.writeRecord(name, data, size);
    if (failure) std::rethrow_exception(failure);
  };
  constexpr std::string_view kByteOrder = "little";
  record("data.pkl", archive.pickle.data(), archive.pickle.size());
  record("byteorder", kByteOrder.data(), kByteOrder.size());
  for (std::size_t i = 0; i < archive.storages.tensors().size(); ++i) {
    const auto& tensor = archive.storages.tensors()[i];
    const auto flat = tensor.as_strided({storage_length(tensor)}, {1}, 0).cpu();
    record("data/" + std::to_string(i), flat.const_data_ptr(), flat.nbytes());
  }
  writer.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

DDPXX_INLINE PickleValue read_pt(const std::filesystem::path& path) {
  const auto map = std::make_shared<MappedFile>(path, Errc::storage);
  try {
    return detail::read_archive(map->bytes(), map);
  } catch (const std::exception& cause) {
    detail::refuse_pt(path.string(), cause);
  }
}

DDPXX_INLINE PickleValue unpack_pt(std::string bytes, const std::string& name) {
  const auto owner = std::make_shared<std::string>(std::move(bytes));
  try {
    return detail::read_archive(std::as_writable_bytes(std::span{*owner}), owner);
  } catch (const std::exception& cause) {
    detail::refuse_pt(name, cause);
  }
}

DDPXX_INLINE void write_pt(const std::filesystem::path& path, const PickleValue& value) {
  const auto archive = detail::plan_archive(value, "cannot write " + path.string());
  write_file_atomic(path, [&](File& file) { detail::write_archive(archive, [&](Bytes bytes) { file.write(bytes); }); });
}

DDPXX_INLINE std::string pack_pt(const PickleValue& value) {
  const auto archive = detail::plan_archive(value, "cannot pack a .pt file");
  std::string bytes;
  bytes.reserve(detail::max_bytes_of(archive));
  detail::write_archive(archive,
                        [&](Bytes part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); });
  return bytes;
}

}  // namespace ddpxx
