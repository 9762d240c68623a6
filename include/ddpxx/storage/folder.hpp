// ddpxx/storage/folder.hpp — a storage whose objects are the files of a folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A storage in a folder of a local or mounted disk. Names that would lead out of the folder are refused.
class Folder final : public Storage {
 public:
  /// `patience_elsewhere` is how long `claim` waits for a holder on another machine: if that machine is lost, a file
  /// server keeps its lock for a while, which is 90 s for NFS 4.
  explicit Folder(const std::filesystem::path& path,
                  std::chrono::milliseconds patience_elsewhere = std::chrono::minutes{2});

  DDPXX_INLINE std::string full_name(const std::string& name) const override;

  DDPXX_INLINE void prepare() override;

  /// Takes a lock on the file `.owner`. The system releases it when the process ends, in whatever way. `owner` should
  /// end with " on " and the machine's name, so that other programs know whether the holder is on another machine.
  DDPXX_INLINE bool claim(const std::string& owner) override;

  DDPXX_INLINE void write(const std::string& name, std::span<const Bytes> parts) override;
  DDPXX_INLINE bool create(const std::string& name, Bytes content) override;
  DDPXX_INLINE void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) override;
  DDPXX_INLINE std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override;
  DDPXX_INLINE std::vector<StoredObject> list(const std::string& prefix) override;
  DDPXX_INLINE std::vector<std::string> links() override;
  DDPXX_INLINE void remove(const std::string& name) override;
  DDPXX_INLINE std::optional<std::uint64_t> free_bytes() override;

 private:
  /// Removes half-written files of killed writers, in this folder and in the folders directly below. Looks no deeper,
  /// and skips folders that this user may not read: the files there belong to other programs.
  void sweep() const;
  std::filesystem::path path_of(const std::string& name) const;
  /// Makes the folders of an object. The storage's own folder may be a symbolic link; the folders below it may not.
  void make_folder_for(const std::filesystem::path& object) const;
  /// Warns if other users may write to the folder: they can replace and remove its files.
  void warn_if_world_writable() const;

  std::filesystem::path path_;
  std::chrono::milliseconds patience_elsewhere_;
  std::optional<File> owner_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/storage/folder_inl.hpp>
#endif
