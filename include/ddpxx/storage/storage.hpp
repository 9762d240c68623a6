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

/// The place is there, and cannot give the bytes of this object: a bad sector, or a damaged file system. Other objects
/// may be readable. A place that does not answer is another `Error`.
class UnreadableObject final : public Error {
 public:
  explicit UnreadableObject(std::string text) : Error{Errc::storage, std::move(text)} {}
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

  /// Removes the object. One that is not there is no error.
  virtual void remove(const std::string& name) = 0;
};

}  // namespace ddpxx
