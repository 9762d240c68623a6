// ddpxx/storage/storage.hpp — named objects in one location: a folder, or a bucket behind s3://.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

/// The name and the size of an object, as `list` returns them.
struct StoredObject {
  std::string name;
  std::uint64_t size = 0;

  bool operator==(const StoredObject&) const = default;
};

/// A range of bytes of an object.
struct StoredRange {
  std::string name;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> bytes = {};  ///< None: the whole object, as a text of at most `max_bytes`.
  std::uint64_t max_bytes = 0;
};

/// The storage reports that it cannot read these bytes of an object: a bad sector, a damaged file system, or an object
/// larger than the reader's limit. A mounted file server may report the same errors while it does not answer. Only a
/// second attempt, some time later, tells the two apart: see `is_readable_now`.
class UnreadableObject final : public Error {
 public:
  UnreadableObject(std::string text, StoredRange range)
      : Error{Errc::storage, std::move(text)}, range_{std::move(range)} {}

  const StoredRange& range() const noexcept { return range_; }

 private:
  StoredRange range_;
};

/// Objects under names such as "step-12/manifest.json": files of a folder, or objects under a prefix of a bucket. An
/// object is written as a whole: readers see all of it or nothing. All functions may be called by several threads at
/// the same time. A program may derive a storage of its own and hand it to SnapshotHistory.
/// Errors  `storage` from every function, naming the operation, the object's full name and the reason.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  virtual ~Storage() = default;

  /// Returns the full name of an object, as messages show it and as a user would type it. An empty name gives the full
  /// name of the location.
  virtual std::string full_name(const std::string& name) const = 0;

  /// Checks that objects can be written here. Makes the location if it does not exist. Ranks on several machines call
  /// it at the same time.
  virtual void prepare() = 0;

  /// If the location has locks: keeps other programs from writing here as long as this object lives, removes what an
  /// earlier writer left half-written, and returns true. Otherwise returns false. Other programs' errors show `owner`.
  /// Errors  `storage`, also if another program holds the lock.
  virtual bool claim([[maybe_unused]] const std::string& owner) { return false; }

  /// Writes the object, or replaces it. Its content is the parts, one after the other. When this returns, the object
  /// survives a loss of power.
  virtual void write(const std::string& name, std::span<const Bytes> parts) = 0;

  /// Creates the object. Returns false if an object of that name exists. If several writers create it at the same time,
  /// exactly one succeeds.
  virtual bool create(const std::string& name, Bytes content) = 0;

  /// Fills `buffer` with the object's bytes from `offset` on. After an error the content of `buffer` is undefined.
  /// Errors  `storage`, also if the object does not exist or is too short; UnreadableObject.
  virtual void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) = 0;

  /// Returns the object's content, or none if it does not exist.
  /// Errors  `storage`; UnreadableObject, also if the object is larger than `max_bytes`.
  virtual std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) = 0;

  /// Returns the objects whose names begin with `prefix`, ordered by name. Returns none if the location does not exist.
  virtual std::vector<StoredObject> list(const std::string& prefix) = 0;

  /// Returns the names of the symbolic links in the location itself. `list` does not follow links to folders.
  virtual std::vector<std::string> links() { return {}; }

  /// Returns the bytes that can be written here before the space ends; none if the storage does not know.
  virtual std::optional<std::uint64_t> free_bytes() { return std::nullopt; }

  /// Removes the object. It is not an error if the object does not exist.
  virtual void remove(const std::string& name) = 0;
};

/// Writes the object, or replaces it, with this content.
///
/// Errors  `storage`.
inline void write_text(Storage& storage, const std::string& name, std::string_view text) {
  const Bytes parts[] = {bytes_of(text)};
  storage.write(name, parts);
}

/// Reads a range once more that `storage` could not read before. Returns true if it is there and can be read now.
/// Errors  `storage` for an error of another kind, for example if the storage does not answer.
inline bool is_readable_now(Storage& storage, const StoredRange& range) {
  try {
    if (range.bytes) {
      std::vector<std::byte> buffer(*range.bytes);
      storage.read(range.name, range.offset, buffer);
      return true;
    }
    return storage.read_text(range.name, range.max_bytes).has_value();
  } catch (const UnreadableObject&) {
    return false;
  }
}

}  // namespace ddpxx
