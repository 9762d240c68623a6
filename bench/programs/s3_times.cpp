// s3_times — measures uploads to a server of S3 and downloads from it.
//
//   s3_times upload PLACE NAME BYTES     from memory; prints a line of JSON for each repetition
//   s3_times download PLACE NAME BYTES   into memory, of the object that upload has left; prints the same
//   s3_times put PLACE NAME FILE         a file, once
//   s3_times get PLACE NAME FILE         into a file, once
//
// bench/peers/s3_times.py does the first two in Python.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/storage/open_storage.hpp>

namespace {

constexpr int kRepetitions = 3;                                  // after one for warm-up
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20U;  // the bytes of one request, as the peers use
constexpr int kFetches = 8;                                      // more of them need more memory and save no time

/// The bytes that the peer uses: byte i is i modulo 251.
std::vector<std::byte> pattern(const std::string& size) {
  std::uint64_t count = 0;
  std::from_chars(size.data(), size.data() + size.size(), count);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

template <class Operation>
double milliseconds_of(Operation operation) {
  const auto begin = std::chrono::steady_clock::now();
  operation();
  return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - begin}.count();
}

void upload(ddpxx::Storage& storage, const std::string& name, const std::string& size) {
  const auto content = pattern(size);
  const std::array<ddpxx::Bytes, 1> parts{content};
  for (int i = 0; i <= kRepetitions; ++i) {
    const auto took = milliseconds_of([&] { storage.write(name, parts); });
    if (i > 0) std::cout << nlohmann::json{{"ms", took}, {"bytes", content.size()}} << std::endl;
  }
}

void download(ddpxx::Storage& storage, const std::string& name, const std::string& size) {
  const auto expected = pattern(size);
  std::vector<std::byte> content(expected.size());
  for (int i = 0; i <= kRepetitions; ++i) {
    std::fill(content.begin(), content.end(), std::byte{0});
    const auto took = milliseconds_of([&] { storage.read(name, 0, content); });
    if (content != expected) throw ddpxx::Error{ddpxx::Errc::data, "not what was uploaded"};
    if (i > 0) std::cout << nlohmann::json{{"ms", took}, {"bytes", content.size()}} << std::endl;
  }
}

/// A file that stays open until the end of the scope.
class File {
 public:
  File(const std::string& path, int flags) : number_{::open(path.c_str(), flags, 0644)} {
    if (number_ < 0) throw ddpxx::Error{ddpxx::Errc::data, "cannot open " + path};
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(number_); }

  int number() const noexcept { return number_; }

 private:
  int number_;
};

/// A file mapped into memory.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path)
      : size_{std::filesystem::file_size(path)},
        memory_{::mmap(nullptr, size_, PROT_READ, MAP_SHARED, File{path, O_RDONLY}.number(), 0)} {
    if (memory_ == MAP_FAILED) throw ddpxx::Error{ddpxx::Errc::memory, "cannot map " + path};
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { ::munmap(memory_, size_); }

  ddpxx::Bytes bytes() const noexcept { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  std::size_t size_;
  void* memory_;
};

void put(ddpxx::Storage& storage, const std::string& name, const std::string& path) {
  const MappedFile file{path};
  storage.write(name, std::array{file.bytes()});
}

/// Downloads an object into a file through memory that is reused, because writing to a mapped file would cause a page
/// fault for each page.
void get(ddpxx::Storage& storage, const std::string& name, const std::string& path) {
  const auto found = storage.list(name);
  if (found.empty()) throw ddpxx::Error{ddpxx::Errc::data, "there is no " + storage.full_name(name)};
  const auto size = found.front().size;
  const File file{path, O_WRONLY | O_CREAT | O_TRUNC};
  std::atomic<std::uint64_t> next{0};
  const auto fetch_piece = [&](std::span<std::byte> room, std::uint64_t from) {
    const auto piece = room.first(std::min(kPieceBytes, size - from));
    storage.read(name, from, piece);
    if (::pwrite(file.number(), piece.data(), piece.size(), static_cast<off_t>(from)) != std::ssize(piece))
      throw ddpxx::Error{ddpxx::Errc::data, "cannot write " + path};
  };
  const auto fetch = [&] {
    std::vector<std::byte> memory(kPieceBytes);
    for (auto from = next.fetch_add(kPieceBytes); from < size; from = next.fetch_add(kPieceBytes)) {
      try {
        fetch_piece(memory, from);
      } catch (...) {
        next = size;  // leaves nothing for the other threads
        throw;
      }
    }
  };
  std::vector<std::future<void>> fetches;
  for (int i = 0; i < kFetches; ++i) fetches.push_back(std::async(std::launch::async, fetch));
  for (auto& ended : fetches) ended.get();
}

struct Operation {
  std::string_view name;
  void (*run)(ddpxx::Storage& storage, const std::string& name, const std::string& what);
};
constexpr Operation kOperations[] = {{"upload", upload}, {"download", download}, {"put", put}, {"get", get}};

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("s3_times", [&] {
    const std::string_view name = argc == 5 ? argv[1] : "";
    const auto* const operation = std::find_if(std::begin(kOperations), std::end(kOperations),
                                               [&](const Operation& d) { return d.name == name; });
    if (operation == std::end(kOperations))
      throw ddpxx::Error{ddpxx::Errc::config, "usage: s3_times upload|download|put|get PLACE NAME BYTES|FILE"};
    const auto storage = ddpxx::open_storage(argv[2]);
    operation->run(*storage, argv[3], argv[4]);
  });
}
