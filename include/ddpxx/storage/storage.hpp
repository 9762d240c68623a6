// ddpxx/storage/storage.hpp — named objects in one place, on disk or behind s3://.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

/// What a listing says of an object.
struct StoredObject {
  std::string name;
  std::uint64_t size = 0;

  bool operator==(const StoredObject&) const = default;
};

/// Bytes of an object.
struct StoredRange {
  std::string name;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> bytes = {};  ///< None: the whole object, as a text of at most `max_bytes`.
  std::uint64_t max_bytes = 0;
};

/// The place reports that it cannot give these bytes of an object: a bad sector, a damaged file system, or more bytes
/// than the reader takes. A mounted file server reports the same while it does not answer, so that only a second
/// reading, some time later, tells the two apart: `is_readable_now`.
class UnreadableObject final : public Error {
 public:
  UnreadableObject(std::string text, StoredRange range)
      : Error{Errc::storage, std::move(text)}, range_{std::move(range)} {}

  const StoredRange& range() const noexcept { return range_; }

 private:
  StoredRange range_;
};

/// Objects under names such as "step-12/manifest.json": files of a folder, or objects under a prefix of a bucket.
/// An object is written once and whole: whoever reads it sees all of it or none. May be used by several threads.
/// Errors  `storage` from every deed, naming the deed, the whole name and the reason.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  virtual ~Storage() = default;

  /// The whole name of an object, as messages show it and as a user would type it; of the place, for an empty name.
  virtual std::string whole_name(const std::string& name) const = 0;

  /// Finds out whether objects can be written here; makes the place where it is not there yet.
  virtual void prepare() = 0;

  /// Keeps other programs from writing here until this object is gone, where the place has locks: then true, and what
  /// an earlier writer left half-done is removed. `owner` is what the others are told.
  /// Errors  also where another program has the place.
  virtual bool claim([[maybe_unused]] const std::string& owner) { return false; }

  /// Makes the object, or replaces it, out of the parts one after the other. On return it will outlast a loss of power.
  virtual void write(const std::string& name, std::span<const Bytes> parts) = 0;

  /// Makes the object unless one of its name is there: then false. Of many writers exactly one makes it.
  virtual bool create(const std::string& name, Bytes content) = 0;

  /// Fills `room` with the object's bytes from `offset` on. After an error it holds anything.
  /// Errors  also for an object that is not there or ends before; UnreadableObject.
  virtual void read(const std::string& name, std::uint64_t offset, std::span<std::byte> room) = 0;

  /// The whole content; none where there is no such object.
  /// Errors  also for one larger than `max_bytes`; UnreadableObject.
  virtual std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) = 0;

  /// The objects whose names begin with `front`, in the order of their names; none where the place is not there.
  virtual std::vector<StoredObject> list(const std::string& front) = 0;

  /// The names of the symbolic links in the place itself. `list` does not follow links to folders.
  virtual std::vector<std::string> links() { return {}; }

  /// Removes the object. One that is not there is no error.
  virtual void remove(const std::string& name) = 0;
};

/// Reads the bytes once more that `storage` could not give.
/// Errors  `storage` for an error of another kind, such as a place that does not answer.
inline bool is_readable_now(Storage& storage, const StoredRange& range) {
  try {
    if (range.bytes) {
      std::vector<std::byte> buffer(*range.bytes);
      storage.read(range.name, range.offset, buffer);
    } else {
      storage.read_text(range.name, range.max_bytes);
    }
    return true;
  } catch (const UnreadableObject&) {
    return false;
  }
}

}  // namespace ddpxx
