// ddpxx/config/files/json.hpp — reads the entries of a JSON text, with the position of every key and value.
//
// nlohmann's parser checks the text (RFC 8259) and reads its values, but reports no positions: a cursor over the text
// follows its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/document_flattener.hpp>
#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/files/json_problem.hpp>
#include <ddpxx/config/files/text_cursor.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Builds the tree. Numbers stay as they are written.
/// Errors  DocumentRefusal for a text that is not JSON, exceeds a limit, or has a NUL character.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(std::string_view text) : cursor_{text} {}

  const DocumentTree& tree() const noexcept { return tree_; }

  bool null() override {
    add_word(RawValue::Kind::none);
    return true;
  }
  bool boolean(bool) override { return add_word_text(); }
  bool number_integer(std::int64_t) override { return add_word_text(); }
  bool number_unsigned(std::uint64_t) override { return add_word_text(); }
  bool number_float(double, const std::string&) override { return add_word_text(); }
  bool string(std::string& text) override { return add_string(text, JsonToken::string); }
  bool key(std::string& text) override { return add_string(text, JsonToken::key); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(RawValue::Kind::group); }
  bool start_array(std::size_t) override { return open(RawValue::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    state_.innermost = tree_.innermost();
    state_.is_overflow = error.id == kNumberOverflow;
    refuse_json(cursor_, state_);
  }

 private:
  DocumentNode& add_word(RawValue::Kind kind) {
    cursor_.skip_to_token();
    state_.last = JsonToken::word;
    state_.word_mark = cursor_.mark();
    auto& node = tree_.add(cursor_.mark(), kind);
    state_.word = cursor_.take_word();
    return node;
  }
  bool add_word_text() {
    add_word(RawValue::Kind::text).text = state_.word;
    return true;
  }
  bool add_string(std::string& text, JsonToken token) {
    cursor_.skip_to_token();
    refuse_nul_character(cursor_.mark(), text);
    auto& node = tree_.add(cursor_.mark(), RawValue::Kind::text);
    node.text = std::move(text);
    node.quoted = true;
    cursor_.take_string();
    state_.last = token;
    return true;
  }
  bool open(RawValue::Kind kind) {
    cursor_.skip_to_token();
    tree_.open(cursor_.mark(), kind).in_brackets = true;
    cursor_.take();
    state_.last = JsonToken::opening;
    return true;
  }
  bool close() {
    cursor_.skip_to_token();
    tree_.close();
    cursor_.take();
    state_.last = JsonToken::closing;
    return true;
  }

  TextCursor cursor_;
  DocumentTree tree_;
  JsonState state_;
};

/// The entries of a JSON text; a blank text has none. `source` gets its lines.
inline SourceEntries read_json(std::string_view text, std::shared_ptr<ConfigSource> source) {
  const DocumentText json{text, std::move(source)};
  if (const auto problem = json.problem_in_bytes()) return {.source = json.source(), .problems = {*problem}};
  if (json.text().find_first_not_of(" \t\r\n") == std::string::npos) return {.source = json.source()};
  JsonEvents events{json.text()};
  try {
    // nlohmann's parser would accept a second byte order mark.
    if (json.text().starts_with("\xEF\xBB\xBF")) throw DocumentRefusal{{}, "a byte order mark, twice"};
    nlohmann::json::sax_parse(json.text().begin(), json.text().end(), &events);
  } catch (const DocumentRefusal& refusal) {
    return {.source = json.source(), .problems = {{json.place(refusal.mark()), "", refusal.what()}}};
  }
  return DocumentFlattener{json}.flatten(*events.tree().root(), "a configuration is an object: {\"key\": value}");
}

/// The entries of a JSON text. `name` is used in messages; `order` is the file's order among the sources.
inline SourceEntries read_json_text(std::string_view text, std::string name, std::size_t order) {
  return read_json(text, std::make_shared<ConfigSource>(ConfigSource{.order = order, .name = std::move(name)}));
}

}  // namespace ddpxx::detail
