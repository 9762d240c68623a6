// ddpxx/data/bpe/tokenizer_files.hpp — reads the files of a byte-level tokenizer: tokenizer.json, or vocab.json and
// merges.txt.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/data/bpe/split_pattern.hpp>
#include <ddpxx/data/bpe/tokenizer_rules.hpp>

namespace ddpxx::detail {

using Json = nlohmann::json;

inline Json read_json(const std::filesystem::path& path) {
  auto json = Json::parse(read_file(path, Errc::data), nullptr, false);
  if (!json.is_object()) throw Error{Errc::data, "this is not a JSON object"};
  return json;
}

/// The member of a JSON object; null where it is missing.
inline const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

[[noreturn]] inline void refuse_setting(const std::string& key, const Json& value) {
  const auto shown = value.is_structured() ? std::string{value.type_name()} : value.dump();
  throw Error{Errc::data, key + " is " + shown + ", which ddpxx does not support: it reads byte-level BPE without a " +
                              "normalizer, without truncation, and without tokens added before or behind each text"};
}

inline bool flag_of(const Json& object, const char* key, bool otherwise) {
  const auto& value = member(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse_setting(key, value);
  return value.get<bool>();
}

inline std::string text_of(const Json& object, const char* key) {
  const auto& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string{};
}

/// Refuses a setting unless it is missing, null or empty.
inline void must_be_empty(const Json& object, const char* key) {
  const auto& value = member(object, key);
  if (!value.is_null() && !(value.is_string() && value.get_ref<const std::string&>().empty()))
    refuse_setting(key, value);
}

inline WrittenVocabulary read_vocabulary(const Json& tokens) {
  if (!tokens.is_object()) throw Error{Errc::data, "it has no vocabulary"};
  WrittenVocabulary vocabulary;
  for (const auto& [written, id] : tokens.items()) {
    if (!id.is_number_integer()) throw Error{Errc::data, "the token \"" + written + "\" has no number as its id"};
    vocabulary.add(written, id.get<std::int64_t>());
  }
  return vocabulary;
}

inline std::vector<Merge> read_merges(const Json& list, const WrittenVocabulary& vocabulary) {
  if (!list.is_array()) throw Error{Errc::data, "model.merges is not a list"};
  std::vector<Merge> merges;
  merges.reserve(list.size());
  for (const auto& item : list) {
    if (item.is_string()) {
      const auto [left, right] = parts_of_merge(item.get_ref<const std::string&>());
      merges.push_back(vocabulary.merge(left, right));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back(vocabulary.merge(item[0].get<std::string>(), item[1].get<std::string>()));
    } else {
      throw Error{Errc::data, "model.merges has an element that is not a pair of tokens"};
    }
  }
  return merges;
}

inline void read_split(const Json& step, TokenizerRules& rules) {
  if (text_of(step, "type") != "Split")
    refuse_setting("pre_tokenizer.type of a step before the last", member(step, "type"));
  const auto pattern = text_of(member(step, "pattern"), "Regex");
  if (pattern.empty()) refuse_setting("pre_tokenizer.pattern", member(step, "pattern"));
  if (text_of(step, "behavior") != "Isolated") refuse_setting("pre_tokenizer.behavior", member(step, "behavior"));
  if (flag_of(step, "invert", false)) refuse_setting("pre_tokenizer.invert", true);
  rules.patterns.emplace_back(pattern);
}

inline void read_byte_level(const Json& step, TokenizerRules& rules) {
  if (text_of(step, "type") != "ByteLevel") refuse_setting("pre_tokenizer.type", member(step, "type"));
  rules.add_prefix_space = flag_of(step, "add_prefix_space", true);
  if (rules.add_prefix_space && !rules.patterns.empty())
    refuse_setting("pre_tokenizer.add_prefix_space behind another step", true);
  if (flag_of(step, "use_regex", true)) rules.patterns.emplace_back(kGPT2Pattern);
}

/// Reads how a text is cut into pieces: by GPT-2's pattern, by patterns of the file's own, or not at all. The last step
/// is ByteLevel, since a step behind it would see the characters that stand for bytes.
inline void read_pre_tokenizer(const Json& step, TokenizerRules& rules) {
  if (text_of(step, "type") != "Sequence") return read_byte_level(step, rules);
  const auto& parts = member(step, "pretokenizers");
  if (!parts.is_array() || parts.empty()) refuse_setting("pre_tokenizer.pretokenizers", parts);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) read_split(parts[i], rules);
  read_byte_level(parts.back(), rules);
}

/// Puts the added tokens of the file among the tokens.
inline std::vector<AddedToken> read_added_tokens(const Json& list, WrittenVocabulary& vocabulary) {
  std::vector<AddedToken> added;
  if (list.is_null()) return added;
  if (!list.is_array()) throw Error{Errc::data, "added_tokens is not a list"};
  for (const auto& item : list) {
    const auto text = text_of(item, "content");
    const auto& id = member(item, "id");
    if (text.empty() || !id.is_number_integer())
      throw Error{Errc::data, "added_tokens has an element without a text or without an id"};
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (flag_of(item, key, false)) refuse_setting(key + std::string{" of the token "} + text, true);
    const auto known = vocabulary.find(text);
    if (!known)
      vocabulary.add(text, id.get<std::int64_t>());
    else if (*known != id.get<std::int64_t>())
      throw Error{Errc::data, "the added token \"" + text + "\" has another id in the vocabulary"};
    const bool is_special = flag_of(item, "special", false);
    added.push_back(
        {text, static_cast<std::int32_t>(id.get<std::int64_t>()), flag_of(item, "normalized", !is_special)});
  }
  return added;
}

/// Source  Hugging Face tokenizers, the format of Tokenizer.save().
inline TokenizerRules read_tokenizer_json(const std::filesystem::path& path) {
  const auto json = read_json(path);
  for (const char* key : {"normalizer", "truncation", "padding"})
    if (!member(json, key).is_null()) refuse_setting(key, member(json, key));
  const auto& model = member(json, "model");
  // Older files lack the key; a file with merges is BPE.
  if (!member(model, "type").is_null() && text_of(model, "type") != "BPE")
    refuse_setting("model.type", member(model, "type"));
  // A token for unknown characters has no effect: each byte has a token.
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) must_be_empty(model, key);
  const auto& dropout = member(model, "dropout");
  if (!dropout.is_null() && dropout != 0) refuse_setting("model.dropout", dropout);
  const auto& post = member(json, "post_processor");
  if (!post.is_null() && text_of(post, "type") != "ByteLevel")
    refuse_setting("post_processor.type", member(post, "type"));
  const auto& step = member(json, "pre_tokenizer");
  if (!step.is_object()) refuse_setting("pre_tokenizer", step);

  auto vocabulary = read_vocabulary(member(model, "vocab"));
  auto merges = read_merges(member(model, "merges"), vocabulary);
  auto added = read_added_tokens(member(json, "added_tokens"), vocabulary);
  auto rules = std::move(vocabulary).rules();
  rules.merges = std::move(merges);
  rules.added = std::move(added);
  for (const auto& token : rules.added) rules.tokens[static_cast<std::size_t>(token.id)] = token.text;
  rules.ignore_merges = flag_of(model, "ignore_merges", false);
  read_pre_tokenizer(step, rules);
  return rules;
}

/// Reads merges.txt: a merge in each line, behind a line that names the version.
/// Errors  `data`, naming the line.
inline std::vector<Merge> read_merges_file(const std::filesystem::path& path, const WrittenVocabulary& vocabulary) {
  std::vector<Merge> merges;
  const auto text = read_file(path, Errc::data);
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    try {
      const auto [left, right] = parts_of_merge(line);
      merges.push_back(vocabulary.merge(left, right));
    } catch (const Error& error) {
      throw Error{error.code(), "line " + std::to_string(number) + " of " + path.string() + ": " + error.what()};
    }
  }
  return merges;
}

/// Source  GPT-2's encoder.json and vocab.bpe, which Hugging Face names vocab.json and merges.txt.
inline TokenizerRules read_vocabulary_and_merges(const std::filesystem::path& vocabulary_path,
                                                 const std::filesystem::path& merges_path) {
  constexpr std::string_view kEndOfText = "<|endoftext|>";
  const auto vocabulary_json = read_json(vocabulary_path);
  auto vocabulary = read_vocabulary(vocabulary_json);
  auto merges = read_merges_file(merges_path, vocabulary);
  const auto end_of_text = vocabulary.find(std::string{kEndOfText});
  auto rules = std::move(vocabulary).rules();
  rules.merges = std::move(merges);
  rules.patterns.emplace_back(kGPT2Pattern);
  if (end_of_text) rules.added.push_back({.text = std::string{kEndOfText}, .id = *end_of_text});
  return rules;
}

/// The rules of a tokenizer.json, of a vocab.json with merges.txt beside it, or of a folder with either.
/// Errors  `data`, naming the file and what is wrong with it.
inline TokenizerRules read_tokenizer_rules(const std::filesystem::path& path) {
  std::error_code ignored;
  auto file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file = path / "tokenizer.json";
    if (!std::filesystem::exists(file, ignored)) file = path / "vocab.json";
    if (!std::filesystem::exists(file, ignored))
      throw Error{Errc::data, "the folder " + path.string() +
                                  " has no tokenizer: it needs tokenizer.json, or vocab.json and merges.txt"};
  }
  const auto merges = file.parent_path() / "merges.txt";
  try {
    return file.filename() == "vocab.json" ? read_vocabulary_and_merges(file, merges) : read_tokenizer_json(file);
  } catch (const FileError&) {
    throw;  // its text names the file
  } catch (const Error& error) {
    throw Error{error.code(), "the tokenizer " + file.string() + " cannot be used: " + error.what()};
  }
}

}  // namespace ddpxx::detail
