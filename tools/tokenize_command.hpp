// tokenize_command.hpp — `ddpxx tokenize PATH tokenizer=PLACE to=FOLDER` makes files of tokens from texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/data/data_files.hpp>
#include <ddpxx/data/plain_text.hpp>
#include <ddpxx/data/text_files.hpp>
#include <ddpxx/data/token_format.hpp>
#include <ddpxx/data/tokenizer.hpp>
#include <ddpxx/data/utf8.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>

#include "argument_numbers.hpp"
#include "output_folder.hpp"

struct TokenizeArguments {
  std::string path = {};
  std::string tokenizer = {};
  std::string to = {};
  double val_fraction = 0.1;
  std::string end_of_text = "<|endoftext|>";

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&TokenizeArguments::path>(
            "Texts in UTF-8: a file, a folder with all files below it, or a pattern such as 'books/*.txt'"),
        field<&TokenizeArguments::tokenizer>(
            "Tokenizer: a tokenizer.json, a vocab.json with merges.txt beside it, or a folder with one of the two"),
        field<&TokenizeArguments::to>(
            "Folder for train.bin and val.bin; it is made, with those above it, if it is missing"),
        field<&TokenizeArguments::val_fraction>(
            "Fraction of the text, from its end, that goes to val.bin; 0 makes no val.bin", at_least(0.0), below(1.0)),
        field<&TokenizeArguments::end_of_text>("Token that ends each file; empty puts none"));
  }
  static constexpr auto positionals() { return std::array{"path"}; }

  std::vector<ddpxx::FieldError> check() const {
    std::vector<ddpxx::FieldError> errors;
    if (path.empty()) errors.push_back({"path", "no text to tokenize: name a file, a folder or a pattern"});
    if (tokenizer.empty()) errors.push_back({"tokenizer", "name the tokenizer: tokenizer=FOLDER or a tokenizer.json"});
    if (to.empty()) errors.push_back({"to", "name the folder for train.bin and val.bin: to=FOLDER"});
    for (const auto& [key, place] : {std::pair{"path", path}, {"tokenizer", tokenizer}, {"to", to}})
      if (place.find("://") != std::string::npos)
        errors.push_back({key, "ddpxx tokenize reads and writes files of this machine: copy the objects to a folder"});
    for (const auto& [key, place] : {std::pair{"tokenizer", tokenizer}, {"to", to}})
      if (!place.empty() && ddpxx::is_among_texts(place, path))
        errors.push_back({key, "lies in path=" + path +
                                   ", all files of which are read as text: choose a place "
                                   "outside of that folder"});
    return errors;
  }
};

/// A new file of the ids of `vocab_size` different tokens, under a temporary name until it is published.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, std::int64_t vocab_size)
      : path_{path}, temporary_{path}, id_bytes_{ddpxx::detail::id_bytes(vocab_size)} {}

  void append(std::span<const std::int64_t> ids) {
    if (id_bytes_ == 2)
      write(std::vector<std::uint16_t>(ids.begin(), ids.end()));
    else
      write(std::vector<std::uint32_t>(ids.begin(), ids.end()));
    count_ += std::ssize(ids);
  }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::int64_t count() const noexcept { return count_; }

  void sync() { temporary_.file().sync(); }

  /// Replaces the file of an earlier call.
  void publish() {
    temporary_.publish(path_);
    ddpxx::detail::sync_folder(path_.parent_path(), path_);
  }

 private:
  template <class Id>
  void write(const std::vector<Id>& ids) {
    temporary_.file().write(std::as_bytes(std::span{ids}));
  }

  std::filesystem::path path_;
  ddpxx::detail::TemporaryFile temporary_;
  std::int64_t id_bytes_;
  std::int64_t count_ = 0;
};

/// Tokenizes the files one after the other. The first bytes of their joined text go to `train`, the rest to `val`, if
/// there is one, cut at the beginning of a character. Added tokens in a text are text like any other: only `end`, which
/// is put behind each file, is one.
/// Errors  `data`, naming the file, if it cannot be read or tokenized, or holds no text.
inline void write_tokens(const std::vector<std::string>& files, std::uintmax_t train_bytes,
                         const ddpxx::Tokenizer& tokenizer, std::optional<std::int64_t> end, TokenWriter& train,
                         TokenWriter* val) {
  std::uintmax_t begin = 0;  // offset of the file in the joined text
  for (const auto& name : files) {
    const auto text = ddpxx::read_file(name, ddpxx::Errc::data);
    if (const auto bad = ddpxx::find_non_text(text); bad != std::string::npos)
      throw ddpxx::non_text_error(name, bad, text[bad]);
    const auto encode = [&](std::string_view part) {
      try {
        return tokenizer.encode_ordinary(part);
      } catch (ddpxx::Error& error) {
        error.with("text", name);
        throw;
      }
    };
    const bool ends_in_val = val != nullptr && begin + text.size() > train_bytes;
    auto cut = text.size();
    if (ends_in_val)
      cut = begin >= train_bytes ? 0 : ddpxx::without_torn_end({text.data(), train_bytes - begin}).size();
    begin += text.size();
    train.append(encode({text.data(), cut}));
    if (ends_in_val) val->append(encode(std::string_view{text}.substr(cut)));
    if (end) (ends_in_val ? *val : train).append(std::span{&*end, 1});
  }
}

inline void tokenize_command(int argc, char** argv) {
  const auto arguments = ddpxx::parse_config<TokenizeArguments>(
      argc, argv, {.program = "ddpxx tokenize", .argument_numbers = argument_numbers(2, argc)});
  const ddpxx::Tokenizer tokenizer{arguments.tokenizer};
  std::optional<std::int64_t> end;
  if (!arguments.end_of_text.empty()) {
    end = tokenizer.find_added(arguments.end_of_text);
    if (!end)
      throw ddpxx::Error{ddpxx::Errc::config, "the tokenizer " + arguments.tokenizer + " has no added token \"" +
                                                  arguments.end_of_text +
                                                  "\": name its own by end_of_text=TOKEN, or set end_of_text="};
  }
  const auto files = ddpxx::find_data_files(arguments.path);
  std::uintmax_t bytes = 0;
  std::error_code absent;  // reading the file reports it
  for (const auto& name : files)
    if (const auto size = std::filesystem::file_size(name, absent); !absent) bytes += size;
  const auto train_bytes = static_cast<std::uintmax_t>(static_cast<double>(bytes) * (1 - arguments.val_fraction));

  const std::filesystem::path folder{arguments.to};
  make_output_folder(folder);
  const auto train = folder / "train.bin", val = folder / "val.bin";
  for (const auto& file : files)
    for (const auto& output : {train, val})
      if (std::filesystem::equivalent(file, output, absent))
        throw ddpxx::Error{ddpxx::Errc::config, file +
                                                    " is among the texts, and this call would write it: choose "
                                                    "another folder by to="};
  const bool has_val = arguments.val_fraction > 0;
  if (!has_val && std::filesystem::exists(val, absent))
    throw ddpxx::Error{ddpxx::Errc::config, val.string() +
                                                " is from an earlier call, and val_fraction=0 makes none: "
                                                "remove it, or choose another folder"};
  for (const auto& path : {train, val}) ddpxx::detail::TemporaryFile::sweep_beside(path, folder);
  std::deque<TokenWriter> written;
  written.emplace_back(train, tokenizer.size());
  if (has_val) written.emplace_back(val, tokenizer.size());
  write_tokens(files, train_bytes, tokenizer, end, written.front(), has_val ? &written.back() : nullptr);
  // Both files are whole and on the disk before either replaces an older one: a new one never lies beside an old one.
  for (auto& file : written) {
    if (file.count() == 0)
      throw ddpxx::Error{ddpxx::Errc::data, file.path().string() + " would have no tokens: the texts have " +
                                                std::to_string(bytes) +
                                                " bytes, and val_fraction=" + ddpxx::real_text(arguments.val_fraction)};
    file.sync();
  }
  for (auto& file : written) file.publish();
  for (const auto& file : written) std::cout << file.path().string() << ": " << file.count() << " tokens\n";
  std::vector<std::string> words{"mingpt", "data.format=tokens", "data.path=" + train.string()};
  if (has_val) words.push_back("data.val_path=" + val.string());
  words.push_back("data.tokenizer=" + arguments.tokenizer);
  words.push_back("data.vocab_size=" + std::to_string(tokenizer.size()));
  std::cout << "to train on them: " << ddpxx::detail::shell_line(words) << '\n';
}
