// Sends the input to a job's store as the bytes of three clients. The store answers each request once and in its
// format, or ends the connection, and its limits hold.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/comm/store_client.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/comm/store_requests.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace {

using namespace ddpxx;
using namespace ddpxx::detail;

constexpr StoreLimits kLimits{
    .key_bytes = 8, .value_bytes = 32, .message_bytes = 100, .wait_keys = 3, .will_keys = 2, .total_bytes = 600};
constexpr std::size_t kClients = 3;

/// A store whose clients are in this process.
class Store {
 public:
  Store() {
    for (std::size_t i = 0; i < kClients; ++i) connect(i);
  }

  /// Hands bytes of client `i` to the store. A client whose connection the store ends connects again.
  void send(std::size_t i, std::string_view bytes) {
    const auto held = held_clients();
    auto& client = clients_.at(ids_[i]);
    client.input.append(bytes.substr(0, kLimits.message_bytes + StoreMessage::kLengthBytes - client.input.size()));
    const bool has_input = !client.input.empty();
    std::size_t wanted = 0;
    try {
      requests_.take(client);
      wanted = has_input && client.input.empty() && !client.held ? 1 : 0;
    } catch (const MalformedMessage&) {
      end(i);
    }
    check_answers(held, i, wanted);
  }

  /// Ends the waits of all clients.
  void pass_time() {
    const auto held = held_clients();
    while (const auto next = requests_.next_deadline()) requests_.keep_deadlines(*next);
    if (held_clients() != std::array<bool, kClients>{}) std::abort();
    check_answers(held, kClients, 0);
  }

  void replace(std::size_t i) {
    const auto held = held_clients();
    end(i);
    check_answers(held, i, 0);
  }

  /// Checks the number of keys, each of which takes a byte at least beside what is counted for every key.
  void check_size() {
    replace(0);
    send(0, StoreMessage{StoreOperation::count_keys}.finish());
    StoreMessageReader answer{std::string_view{answers_[0]}.substr(StoreMessage::kLengthBytes)};
    if (answer.code() != static_cast<std::uint8_t>(StoreStatus::done)) std::abort();
    if (static_cast<std::size_t>(answer.number()) > kLimits.total_bytes / (kBytesPerKey + 1)) std::abort();
  }

 private:
  void connect(std::size_t i) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
    ids_[i] = next_id_++;
    far_ends_[i] = Descriptor{ends[1]};
    clients_.emplace(ids_[i], StoreClient{.id = ids_[i], .socket = Descriptor{ends[0]}, .accepted = true});
  }

  void end(std::size_t i) {
    auto client = clients_.extract(ids_[i]);
    requests_.end(std::move(client.mapped()));
    connect(i);
  }

  /// Which clients wait for keys.
  std::array<bool, kClients> held_clients() const {
    std::array<bool, kClients> held{};
    for (std::size_t i = 0; i < kClients; ++i) held[i] = clients_.at(ids_[i]).held.has_value();
    return held;
  }

  /// Checks that each client whose wait has ended since `held` got one answer, client `i` as many as `wanted`, and the
  /// others none.
  void check_answers(const std::array<bool, kClients>& held, std::size_t i, std::size_t wanted) {
    const auto now = held_clients();
    for (std::size_t k = 0; k < kClients; ++k) {
      const std::size_t expected = k == i ? wanted : (held[k] && !now[k] ? 1 : 0);
      if (read_answers(k) != expected) std::abort();
    }
  }

  /// Reads what client `i` has received, and returns the number of answers.
  std::size_t read_answers(std::size_t i) {
    std::array<char, 1024> bytes{};
    const auto received = ::recv(far_ends_[i].get(), bytes.data(), bytes.size(), 0);
    answers_[i].assign(bytes.data(), static_cast<std::size_t>(std::max<::ssize_t>(received, 0)));
    std::string_view rest{answers_[i]};
    std::size_t answers = 0;
    for (; !rest.empty(); ++answers) {
      if (rest.size() <= StoreMessage::kLengthBytes) std::abort();
      const auto size = StoreMessage::kLengthBytes + read_number<std::uint32_t>(rest);
      if (size > rest.size() || size > kLimits.message_bytes + StoreMessage::kLengthBytes) std::abort();
      const auto status = static_cast<StoreStatus>(rest[StoreMessage::kLengthBytes]);
      if (status < StoreStatus::done || status > StoreStatus::refused) std::abort();
      rest.remove_prefix(size);
    }
    return answers;
  }

  Descriptor epoll_{::epoll_create1(0)};
  StoreClients clients_;
  StoreRequests requests_{kLimits, clients_, epoll_};
  std::array<std::uint64_t, kClients> ids_{};
  std::array<Descriptor, kClients> far_ends_;
  std::array<std::string, kClients> answers_;
  std::uint64_t next_id_ = 0;
};

/// Takes bytes from an input. At its end there are none, and numbers are 0.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_{bytes} {}
  bool empty() const { return rest_.empty(); }
  std::size_t number() {
    const auto byte = take(1);
    return byte.empty() ? 0 : static_cast<unsigned char>(byte[0]);
  }
  std::string_view take(std::size_t size) {
    const auto taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view rest_;
};

/// A request with one of the store's operations, whose fields have the sizes that the input says.
std::string request(Input& input) {
  const auto operation = static_cast<StoreOperation>(1 + input.number() % 12);
  StoreMessage message{operation};
  const bool has_time = operation == StoreOperation::get || operation == StoreOperation::wait;
  if (has_time) message.number(static_cast<std::int64_t>(input.number()) * 1000);
  for (auto fields = input.number() % 6; fields > 0; --fields) message.text(input.take(input.number() % 40));
  if (operation == StoreOperation::add) message.number(static_cast<std::int64_t>(input.number()) - 100);
  return std::move(message).finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Store store;
  for (Input input{{reinterpret_cast<const char*>(data), size}}; !input.empty();) {
    const auto choice = input.number();
    const auto client = choice % kClients;
    switch (choice / kClients % 8) {
      case 0:
        store.send(client, input.take(input.number()));
        break;
      case 1:
        store.pass_time();
        break;
      case 2:
        store.replace(client);
        break;
      default:
        store.send(client, request(input));
    }
  }
  return 0;
}
