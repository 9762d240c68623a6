// A storage that keeps objects in memory, records all reads, and whose replies a test may damage.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

struct ReadRange {
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  auto operator<=>(const ReadRange&) const = default;
};

class MemoryStorage final : public Storage {
 public:
  std::map<std::string, std::string> objects;
  /// By object name: the offset of a byte that is wrong in the first reply that contains it.
  std::map<std::string, std::uint64_t> flip_once;
  std::optional<std::uint64_t> space{};  ///< What free_bytes() returns.
  std::chrono::milliseconds pause{0};    ///< The duration of each reply.
  std::chrono::milliseconds pause_to_remove{0};
  std::chrono::milliseconds pause_to_read_text{0};
  std::function<void()> before_next_read;    ///< Called once.
  std::function<void()> before_next_text;    ///< Called once.
  std::function<void()> before_next_remove;  ///< Called once.

  /// All reads, in the order in which they were made.
  std::vector<ReadRange> reads() {
    const std::lock_guard lock{mutex_};
    std::sort(reads_.begin(), reads_.end());
    return reads_;
  }
  void put(const std::string& name, std::string content) {
    const std::lock_guard lock{mutex_};
    objects[name] = std::move(content);
  }
  void forget_reads() { reads_.clear(); }
  std::size_t most_at_once() const { return most_at_once_; }

  std::string full_name(const std::string& name) const override { return "memory/" + name; }
  void prepare() override {}
  void write(const std::string& name, std::span<const Bytes> parts) override {
    const std::lock_guard lock{mutex_};
    auto& object = objects[name];
    object.clear();
    for (const auto part : parts) object.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  bool create(const std::string& name, Bytes content) override {
    const std::lock_guard lock{mutex_};
    return objects.try_emplace(name, reinterpret_cast<const char*>(content.data()), content.size()).second;
  }
  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) override {
    if (const auto call = taken(before_next_read)) call();
    {
      const std::lock_guard lock{mutex_};
      most_at_once_ = std::max(most_at_once_, ++at_once_);
    }
    std::this_thread::sleep_for(pause);
    const std::lock_guard lock{mutex_};
    --at_once_;
    reads_.push_back({name, offset, offset + buffer.size()});
    const auto object = objects.find(name);
    if (object == objects.end() || object->second.size() < offset + buffer.size())
      throw Error{Errc::storage, "cannot read " + full_name(name)};
    std::memcpy(buffer.data(), object->second.data() + offset, buffer.size());
    damage(name, offset, buffer);
  }
  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    if (const auto call = taken(before_next_text)) call();
    std::this_thread::sleep_for(pause_to_read_text);
    const std::lock_guard lock{mutex_};
    const auto object = objects.find(name);
    if (object == objects.end()) return std::nullopt;
    auto text = object->second;
    if (text.size() > max_bytes) throw Error{Errc::storage, "cannot read " + full_name(name) + ": it is too large"};
    reads_.push_back({name, 0, text.size()});
    damage(name, 0, std::as_writable_bytes(std::span{text}));
    return text;
  }
  std::vector<StoredObject> list(const std::string& prefix) override {
    const std::lock_guard lock{mutex_};
    std::vector<StoredObject> found;
    for (const auto& [name, content] : objects)
      if (name.starts_with(prefix)) found.push_back({name, content.size()});
    return found;
  }
  std::optional<std::uint64_t> free_bytes() override { return space; }

  void remove(const std::string& name) override {
    if (const auto call = taken(before_next_remove)) call();
    std::this_thread::sleep_for(pause_to_remove);
    const std::lock_guard lock{mutex_};
    objects.erase(name);
  }

 private:
  std::function<void()> taken(std::function<void()>& call) {
    const std::lock_guard lock{mutex_};
    return std::exchange(call, nullptr);
  }
  void damage(const std::string& name, std::uint64_t offset, std::span<std::byte> reply) {
    const auto flip = flip_once.find(name);
    if (flip == flip_once.end() || flip->second < offset || flip->second >= offset + reply.size()) return;
    reply[flip->second - offset] ^= std::byte{1};
    flip_once.erase(flip);
  }

  std::mutex mutex_;
  std::vector<ReadRange> reads_;
  std::size_t at_once_ = 0;
  std::size_t most_at_once_ = 0;
};

}  // namespace ddpxx
