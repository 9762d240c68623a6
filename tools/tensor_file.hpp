// tensor_file.hpp — a file of tensors that a user names, FILE.pt or FILE.safetensors, in a folder or in a bucket.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

/// A file of tensors; one in a bucket is read into memory as a whole.
struct TensorFile {
  enum class Kind { pt, safetensors };

  std::string name;  ///< The name as the user has written it.
  Kind kind = Kind::pt;

  /// The file to read that `word` names; none if it names a place of snapshots, such as a folder.
  static std::optional<TensorFile> readable(const std::string& word) {
    std::error_code failure;
    if (std::filesystem::is_directory(word, failure)) return std::nullopt;
    const auto extension = extension_of(word);
    if (extension == ".safetensors") return TensorFile{word, Kind::safetensors};
    constexpr std::array kOfTorchSave{".pt", ".pth", ".ckpt", ".bin"};
    const bool is_pt = std::find(kOfTorchSave.begin(), kOfTorchSave.end(), extension) != kOfTorchSave.end();
    return is_pt ? std::optional{TensorFile{word, Kind::pt}} : std::nullopt;
  }

  /// The file to write that `word` names; none if it names a place of snapshots.
  /// Errors  `config` for a file that cannot be written.
  static std::optional<TensorFile> writable(const std::string& word) {
    const auto extension = extension_of(word);
    if (extension == ".pt") return TensorFile{word, Kind::pt};
    if (extension == ".safetensors") {
      if (word.find("://") != std::string::npos)
        throw ddpxx::Error{ddpxx::Errc::config,
                           "\"" + word + "\": a bucket gets .pt files and snapshots only; write it to a folder first"};
      return TensorFile{word, Kind::safetensors};
    }
    // A number as extension belongs to the name of a place, such as v1.5.
    if (extension.size() < 2 || std::isalpha(static_cast<unsigned char>(extension[1])) == 0) return std::nullopt;
    throw ddpxx::Error{ddpxx::Errc::config, "\"" + word + "\": there are FILE.pt, FILE.safetensors and places, and " +
                                                extension + " is neither; to name a place so, end it with a slash"};
  }

  ddpxx::Safetensors read_safetensors() const {
    if (in_bucket())
      throw ddpxx::Error{ddpxx::Errc::config,
                         "\"" + name + "\": a safetensors file is read from a disk only; copy it there"};
    return ddpxx::read_safetensors(name);
  }
  ddpxx::PickleValue read_pt() const {
    if (!in_bucket()) return ddpxx::read_pt(name);
    constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40U;
    auto bytes = ddpxx::open_storage(folder())->read_text(object(), kMaxBytes);
    if (!bytes) throw ddpxx::Error{ddpxx::Errc::storage, "there is no " + name};
    return ddpxx::unpack_pt(std::move(*bytes), name);
  }

  void write(const ddpxx::PickleValue& value) const {
    if (!in_bucket()) return ddpxx::write_pt(name, value);
    ddpxx::write_text(*ddpxx::open_storage(folder()), object(), ddpxx::pack_pt(value));
  }
  /// Writes the tensors of a snapshot under their names there.
  void write(const ddpxx::NamedTensors& tensors) const {
    ddpxx::write_safetensors(name, tensors, ddpxx::snapshot_metadata());
  }

 private:
  /// A dot in the name of a bucket does not begin an extension.
  static std::string extension_of(const std::string& word) {
    const auto scheme = word.find("://");
    const bool is_bucket = scheme != std::string::npos && word.find('/', scheme + 3) == std::string::npos;
    return is_bucket ? "" : std::filesystem::path{word}.extension().string();
  }
  bool in_bucket() const { return name.find("://") != std::string::npos; }
  std::string folder() const { return name.substr(0, name.rfind('/')); }
  std::string object() const { return name.substr(name.rfind('/') + 1); }
};
