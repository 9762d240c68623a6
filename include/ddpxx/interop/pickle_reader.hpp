// ddpxx/interop/pickle_reader.hpp — a restricted unpickler. It builds tensors, containers, numbers and strings, and
// runs no code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/pickle_bytes.hpp>
#include <ddpxx/interop/pickle_objects.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx {

/// The storage of one or more tensors, as a pickle names it.
struct PickledStorage {
  std::string key;
  at::ScalarType dtype = at::kFloat;
  std::int64_t num_elements = 0;
};

/// Returns the named storage as a 1-D contiguous tensor of that type and length, or throws. Called once for each name.
using FindStorage = std::function<at::Tensor(const PickledStorage&)>;

/// The largest pickle that is read. A state dict's pickle is far smaller.
inline constexpr std::size_t kMaxPickleBytes = 64 << 20;

/// Reads a pickle of protocol 2, as torch.save writes it. Takes memory in proportion to the pickle. Tensors are views
/// of their storages, and share a storage where the pickle says so. An OrderedDict becomes a dict, and a Parameter
/// becomes its tensor. Attributes of an OrderedDict, such as `_metadata`, are left out.
/// Errors  `storage`, naming any object that is not a tensor, container, number or string; for a pickle that ends too
///         early, nests too deeply or contains itself; for a tensor that reaches beyond its storage or has more
///         elements than its storage.
PickleValue parse_pickle(std::string_view pickle, const FindStorage& find_storage);

namespace detail {

/// True if every element of the view lies inside a storage of `num_elements`, and the view has at most that many
/// elements.
inline bool view_fits(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                      std::int64_t offset, std::int64_t num_elements) {
  std::int64_t shown = 1, last = offset;
  bool empty = false, fits = offset >= 0 && sizes.size() == strides.size() && sizes.size() <= 64;
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    std::int64_t reach = 0;
    empty = empty || sizes[i] == 0;
    fits = sizes[i] >= 0 && strides[i] >= 0 &&
           !__builtin_mul_overflow(shown, std::max<std::int64_t>(sizes[i], 1), &shown) &&
           !__builtin_mul_overflow(std::max<std::int64_t>(sizes[i] - 1, 0), strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  // Stride 0 is legal, but a view larger than its storage is refused: copying it would multiply its memory.
  return fits && (empty ? offset <= num_elements : last < num_elements && shown <= num_elements);
}

/// The stack machine that runs a pickle. Objects are referred to by index, so cycles cannot leak.
class Unpickler {
 public:
  Unpickler(std::string_view pickle, const FindStorage& find_storage)
      : bytes_{pickle}, find_storage_{find_storage}, objects_{kFreeObjects + pickle.size() / 2} {}

  PickleValue run() {
    try {
      return parse();
    } catch (Error& error) {
      throw error.with("byte", bytes_.place());
    }
  }

 private:
  PickleValue parse() {
    if (bytes_.size() > kMaxPickleBytes) refuse_pickle("has more than 64 MiB");
    if (bytes_.number<std::uint8_t>() != 0x80) refuse_pickle("is not a pickle");
    if (const int protocol = bytes_.number<std::uint8_t>(); protocol != 2)
      refuse_pickle("is of pickle protocol " + std::to_string(protocol) +
                    "; save it with torch.save's own, which is 2");
    for (;;) {
      const auto code = bytes_.take(1).front();
      if (code == '.') break;
      step(code);
    }
    if (stack_.empty()) refuse_pickle("ends without a value");
    if (!marks_.empty() || stack_.size() > 1 || bytes_.place() != bytes_.size())
      refuse_pickle("ends with something left over");
    return objects_.value(stack_.front(), sizeof(PickleValue) * kFreeObjects + 32 * bytes_.size());
  }

  using Id = PickleObjects::Id;
  using List = PickleObjects::List;
  using Tuple = PickleObjects::Tuple;
  using Dict = PickleObjects::Dict;

  // --- stack ---

  void push(PickleObjects::Object object) { stack_.push_back(objects_.add(std::move(object))); }
  Id top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse_pickle("takes from an empty stack");
    return stack_.back();
  }
  Id pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_last(std::size_t count) {
    std::vector<Id> items(count);
    for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
    return items;
  }
  std::vector<Id> pop_mark() {
    if (marks_.empty()) refuse_pickle("closes what it has not opened");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> items{first, stack_.end()};
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  void append(const std::vector<Id>& items) {
    auto& list = objects_.get<List>(top(), "a list").items;
    list.insert(list.end(), items.begin(), items.end());
  }
  void set(const std::vector<Id>& items) {
    if (items.size() % 2 != 0) refuse_pickle("has a key without a value");
    auto& dict = objects_.get<Dict>(top(), "a dict").items;
    dict.insert(dict.end(), items.begin(), items.end());
  }
  void memorize(std::size_t index) {
    if (index > memo_.size()) refuse_pickle("numbers its objects with gaps");
    if (index == memo_.size())
      memo_.push_back(top());
    else
      memo_[index] = top();
  }
  void recall(std::size_t index) {
    if (index >= memo_.size()) refuse_pickle("refers to an object that is not there");
    stack_.push_back(memo_[index]);
  }

  // --- codes ---

  void step(char code) {
    if (code == '(') return marks_.push_back(stack_.size());
    if (code == 'N') return push(std::monostate{});
    if (code == '\x88') return push(true);
    if (code == '\x89') return push(false);
    if (code == 'K') return push(std::int64_t{bytes_.number<std::uint8_t>()});
    if (code == 'M') return push(std::int64_t{bytes_.number<std::uint16_t>()});
    if (code == 'J') return push(std::int64_t{bytes_.number<std::int32_t>()});
    if (code == '\x8a') return push(bytes_.long_integer());
    if (code == 'G') return push(bytes_.big_endian_double());
    if (code == 'X') return push(bytes_.text());
    if (code == ']') return push(List{});
    if (code == '}') return push(Dict{});
    if (code == ')') return push(Tuple{});
    if (code == 't') return push(Tuple{pop_mark()});
    if (code == '\x85') return push(Tuple{pop_last(1)});
    if (code == '\x86') return push(Tuple{pop_last(2)});
    if (code == '\x87') return push(Tuple{pop_last(3)});
    if (code == 'a') return append(pop_last(1));
    if (code == 'e') return append(pop_mark());
    if (code == 's') return set(pop_last(2));
    if (code == 'u') return set(pop_mark());
    if (code == 'q') return memorize(bytes_.number<std::uint8_t>());
    if (code == 'r') return memorize(bytes_.number<std::uint32_t>());
    if (code == 'h') return recall(bytes_.number<std::uint8_t>());
    if (code == 'j') return recall(bytes_.number<std::uint32_t>());
    if (code == 'c') return name_class();
    if (code == 'R') return call();
    if (code == '\x81') return call();
    if (code == 'b') return build();
    if (code == 'Q') return load_storage();
    refuse_pickle("has the code " + in_quotes({&code, 1}) + ", which torch.save does not write");
  }

  void name_class() {
    const auto module = bytes_.line(), name = bytes_.line();
    const auto is = [&](std::string_view known_module, std::string_view known) {
      return module == known_module && name == known;
    };
    if (is("collections", "OrderedDict")) return push(PickledClass::ordered_dict);
    if (is("collections", "Counter")) return push(PickledClass::counter);
    if (is("torch", "Size")) return push(PickledClass::size);
    if (is("torch._utils", "_rebuild_tensor_v2")) return push(PickledClass::tensor);
    if (is("torch._utils", "_rebuild_parameter")) return push(PickledClass::parameter);
    for (const auto& [storage, dtype] : kPickledTypes)
      if (is("torch", storage)) return push(PickleObjects::StorageType{dtype});
    refuse_pickle(
        "names " + in_quotes(module.substr(0, 100)) + ' ' + in_quotes(name.substr(0, 100)) +
        ", which is nothing that ddpxx takes from a file: tensors of real numbers, dicts, lists, tuples, numbers "
        "and texts; save only those");
  }

  static void expect(bool right) {
    if (!right) refuse_pickle("builds an object from arguments that do not belong to it");
  }
  /// Pushes the first of `count` arguments, which must be a T, called `what` in errors.
  template <class T>
  void push_first(const std::vector<Id>& arguments, std::size_t count, const char* what) {
    expect(arguments.size() == count);
    objects_.get<T>(arguments[0], what);
    stack_.push_back(arguments[0]);
  }

  void call() {
    const auto arguments = objects_.get<Tuple>(pop(), "a tuple of arguments").items;
    const auto callee = objects_.get<PickledClass>(pop(), "the name of what to build");
    switch (callee) {
      case PickledClass::ordered_dict:
        expect(arguments.empty());
        return push(Dict{{}, true});
      case PickledClass::counter:
        return push_first<Dict>(arguments, 1, "a dict");
      case PickledClass::size:
        return push_first<Tuple>(arguments, 1, "a tuple");
      case PickledClass::parameter:
        return push_first<at::Tensor>(arguments, 3, "a tensor");
      case PickledClass::tensor:
        expect(arguments.size() == 6 || arguments.size() == 7);
        expect(objects_.get<Dict>(arguments[5], "a dict of hooks").items.empty());
        expect(arguments.size() == 6 || objects_.get<Dict>(arguments[6], "a dict").items.empty());
        return build_tensor(arguments);
    }
  }

  void build_tensor(const std::vector<Id>& arguments) {
    const auto flat = objects_.get<PickleObjects::Storage>(arguments[0], "a storage").flat;
    const auto offset = objects_.get<std::int64_t>(arguments[1], "a number");
    const auto sizes = objects_.integers(arguments[2]), strides = objects_.integers(arguments[3]);
    if (!view_fits(sizes, strides, offset, flat.numel()))
      refuse_pickle("has a tensor that reaches beyond its storage, or shows more than is in it");
    push(flat.as_strided(sizes, strides, offset));
  }

  /// Ignores the attributes of an OrderedDict, which hold versions of modules.
  void build() {
    objects_.get<Dict>(pop(), "a dict of attributes");
    if (!objects_.get<Dict>(top(), "an OrderedDict").ordered) refuse_pickle("gives attributes to a dict");
  }

  void load_storage() {
    const auto parts = objects_.get<Tuple>(pop(), "the name of a storage").items;
    const auto text = [&](std::size_t i) { return objects_.get<std::string_view>(parts[i], "a text"); };
    if (parts.size() != 5 || text(0) != "storage" || text(2).size() > 100)
      refuse_pickle("refers to something outside that is not a storage");
    const auto dtype = objects_.get<PickleObjects::StorageType>(parts[1], "the type of a storage").dtype;
    const auto num_elements = objects_.get<std::int64_t>(parts[4], "a number");
    const std::string key{text(2)};
    text(3);  // the device of the storage
    auto [found, added] = storages_.try_emplace(key);
    auto& flat = found->second;
    if (added) {
      if (num_elements < 0) refuse_pickle("has a storage of negative length");
      flat = find_storage_({key, dtype, num_elements});
    } else if (flat.scalar_type() != dtype || flat.numel() != num_elements) {
      refuse_pickle("has two different storages named " + in_quotes(key));
    }
    push(PickleObjects::Storage{flat});
  }

  /// An object takes at least 40 bytes of memory, and a hostile pickle needs one byte for each. Pickles of real
  /// programs have at least two bytes for each object; this many objects may have fewer.
  static constexpr std::size_t kFreeObjects = std::size_t{1} << 20U;

  PickleBytes bytes_;
  const FindStorage& find_storage_;
  PickleObjects objects_;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Id> memo_;
  std::map<std::string, at::Tensor> storages_;
};

}  // namespace detail

inline PickleValue parse_pickle(std::string_view pickle, const FindStorage& find_storage) {
  return detail::Unpickler{pickle, find_storage}.run();
}

}  // namespace ddpxx
