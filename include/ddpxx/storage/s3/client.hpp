// ddpxx/storage/s3/client.hpp — sends requests to S3 and waits for the replies.
#pragma once

#include <algorithm>
#include <array>
#include <aws/http/request_response.h>
#include <aws/io/uri.h>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/storage/s3/parts_stream.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/runtime.hpp>
#include <ddpxx/storage/s3/text.hpp>
#include <ddpxx/storage/s3_place.hpp>

namespace ddpxx::detail {

/// Sends requests to one bucket and waits for the replies. Several threads may use one client. The first request starts
/// its threads.
class S3Client {
 public:
  /// Errors  `config` for an invalid endpoint.
  S3Client(std::string bucket, S3Config config) : bucket_{std::move(bucket)}, config_{std::move(config)} {
    parse_endpoint();
  }
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;
  ~S3Client() {
    // In a forked process the threads do not exist, and waiting for them would never end.
    if (runtime_ && made_by_ != ::getpid()) static_cast<void>(runtime_.release());
  }

  const S3Config& config() const noexcept { return config_; }
  const std::string& endpoint() const noexcept { return endpoint_; }

  /// Sends the request, if needed as often as the configuration allows, and returns the last reply. If the server says
  /// that the credentials have expired, and they can be searched for again, sends it once more with new ones.
  S3Reply send(const S3Request& request) {
    auto pause = config_.first_pause;
    bool has_renewed = false;
    for (int attempt = 1;; ++attempt) {
      auto reply = send_once(request);
      if (!has_renewed && (reply.code == "ExpiredToken" || reply.code == "InvalidToken") &&
          runtime_->renew_credentials()) {
        has_renewed = true;
        reply = send_once(request);
      }
      // The server may have completed an upload whose answer was lost, or have lost the upload: the object is sent
      // again.
      const bool has_lost_upload = request.operation == "PutObject" && reply.code == "NoSuchUpload";
      if (reply.ok() || attempt >= most_attempts(reply) || !(has_lost_upload || worth_another_attempt(reply)))
        return reply;
      rest(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds{20'000});
    }
  }

 private:
  /// True for an error that the AWS library does not retry although a retry may succeed. False for an error that the
  /// library has already retried.
  bool worth_another_attempt(const S3Reply& reply) const;

  /// True where the server asks for a pause in a way that the AWS library does not know: the request is then sent as
  /// often as the library would send it.
  static bool is_busy(const S3Reply& reply) { return reply.status == 429 || reply.status == 408; }

  int most_attempts(const S3Reply& reply) const {
    constexpr int kForName = 8;  // in 25 to 50 s, as for a service whose machines start anew
    if (is_busy(reply)) return std::max(config_.attempts, static_cast<int>(config_.retries) + 1);
    return reply.error == AWS_IO_DNS_INVALID_NAME && config_.retries > 0 ? kForName : config_.attempts;
  }

  /// Waits for a random part of `pause`, so that ranks that failed at the same time do not retry at the same time.
  static void rest(std::chrono::milliseconds pause) {
    std::uniform_int_distribution<std::int64_t> part{pause.count() / 2, pause.count()};
    std::random_device source;
    std::this_thread::sleep_for(std::chrono::milliseconds{part(source)});
  }

  void parse_endpoint();
  S3Reply send_once(const S3Request& request);

  aws_s3_client* aws_client() {
    const std::lock_guard lock{mutex_};
    if (!runtime_) {
      runtime_ = std::make_unique<S3Runtime>(config_);
      made_by_ = ::getpid();
    }
    if (made_by_ != ::getpid())
      throw Error{Errc::storage,
                  "a storage in S3 was used before a fork, and its threads stayed in the parent: open one "
                  "in each process"};
    return runtime_->client();
  }

  std::string bucket_;
  S3Config config_;
  std::string endpoint_;      // scheme://host[:port]
  std::string aws_endpoint_;  // with the bucket before the host, if it is addressed so
  std::string host_;          // the value of the header Host
  std::string path_prefix_;   // stands before a key
  std::mutex mutex_;
  std::unique_ptr<S3Runtime> runtime_;
  pid_t made_by_ = 0;
};

/// A request under way: the state that the AWS library's callbacks use.
struct S3Call {
  S3Reply reply;
  S3Event finished;
  S3Event gone;

  static int take_headers(aws_s3_meta_request*, const aws_http_headers* headers, int, void* self) {
    auto& call = *static_cast<S3Call*>(self);
    const auto value = [headers](std::string_view name) {
      aws_byte_cursor found{};
      return aws_http_headers_get(headers, s3_cursor(name), &found) == AWS_OP_SUCCESS ? s3_text(found) : std::string{};
    };
    call.reply.writer = value(kS3WriterHeader);
    call.reply.version = value("ETag");
    const auto range = value("Content-Range");  // bytes 0-99/1234
    if (const auto slash = range.rfind('/'); slash != std::string::npos)
      std::from_chars(range.data() + slash + 1, range.data() + range.size(), call.reply.size);
    return AWS_OP_SUCCESS;
  }

  static int take_body(aws_s3_meta_request*, const aws_byte_cursor* bytes, std::uint64_t, void* self) {
    auto& call = *static_cast<S3Call*>(self);
    call.reply.body.append(reinterpret_cast<const char*>(bytes->ptr), bytes->len);
    return AWS_OP_SUCCESS;
  }

  /// The number of bytes that arrived. The AWS library reports the number that the header promised.
  static void count(aws_s3_meta_request*, const aws_s3_meta_request_progress* progress, void* self) {
    static_cast<S3Call*>(self)->reply.filled += progress->bytes_transferred;
  }

  static void finish(aws_s3_meta_request*, const aws_s3_meta_request_result* result, void* self) {
    auto& call = *static_cast<S3Call*>(self);
    call.reply.status = result->response_status;
    call.reply.error = result->error_code;
    if (result->error_response_operation_name != nullptr)
      call.reply.operation = aws_string_c_str(result->error_response_operation_name);
    if (const auto* body = result->error_response_body)
      call.reply.code = xml_text({reinterpret_cast<const char*>(body->buffer), body->len}, "Code");
    if (call.reply.code.empty()) call.name_what_was_repeated();
    call.finished.set();
  }

  /// After its last retry the AWS library only keeps its own error number. Restores the status and the code of the
  /// reply.
  void name_what_was_repeated() {
    struct Name {
      int error;
      int status;
      const char* code;
    };
    static constexpr std::array<Name, 4> kNames{{{AWS_ERROR_S3_SLOW_DOWN, 503, "SlowDown"},
                                                 {AWS_ERROR_S3_INTERNAL_ERROR, 500, "InternalError"},
                                                 {AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED, 403, "RequestTimeTooSkewed"},
                                                 {AWS_ERROR_S3_REQUEST_TIMEOUT, 400, "RequestTimeout"}}};
    for (const auto& name : kNames) {
      if (reply.error != name.error) continue;
      reply.code = name.code;
      if (reply.status < 300) reply.status = name.status;
    }
  }

  static void leave(void* self) { static_cast<S3Call*>(self)->gone.set(); }
};

inline void add_s3_header(aws_http_message* message, std::string_view name, std::string_view value) {
  aws_http_message_add_header(message, {.name = s3_cursor(name), .value = s3_cursor(value), .compression = {}});
}

inline bool S3Client::worth_another_attempt(const S3Reply& reply) const {
  static constexpr std::array<std::string_view, 8> kPassing{
      "BadDigest",      "InvalidDigest", "XAmzContentSHA256Mismatch",  "RequestTimeTooSkewed",
      "RequestTimeout", "SlowDown",      "ConditionalRequestConflict", "OperationAborted"};
  static constexpr std::array kRetriedByLibrary{500, 502, 503, 504};  // other servers have more, such as 507 and 520
  const bool is_retried_by_library =
      reply.error != AWS_IO_DNS_INVALID_NAME &&
      (std::ranges::find(kRetriedByLibrary, reply.status) != kRetriedByLibrary.end() || reply.status < 300 ||
       reply.code == "RequestTimeTooSkewed" || reply.code == "RequestTimeout");
  if (config_.retries > 0 && is_retried_by_library) return false;
  if (reply.status == 501) return false;  // the server does not implement what the request asks for
  if (gives_no_ranges(reply)) return false;
  if (reply.status == 0) return reply.error != AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE && !no_credentials(reply);
  return reply.status >= 500 || is_busy(reply) ||
         std::find(kPassing.begin(), kPassing.end(), reply.code) != kPassing.end();
}

inline void S3Client::parse_endpoint() {
  auto given = config_.endpoint;
  if (given.empty()) {
    const auto* const domain = config_.region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
    given = "https://s3." + config_.region + domain;
  }
  while (given.ends_with('/')) given.pop_back();
  const auto scheme = given.starts_with("https://") ? std::string{"https://"} : std::string{"http://"};
  const auto server = given.starts_with(scheme) ? given.substr(scheme.size()) : std::string{};
  if (server.empty() || server.find_first_of("/?#@ ") != std::string::npos)
    throw Error{Errc::config, s3_endpoint_source(config_) + ": " + without_secrets(config_.endpoint) +
                                  ": expected http[s]://host[:port]"};
  const bool in_path = config_.addressing == S3Addressing::path || !fits_in_host_name(bucket_, scheme == "https://");
  endpoint_ = scheme + server;
  host_ = in_path ? server : bucket_ + '.' + server;
  path_prefix_ = in_path ? '/' + bucket_ + '/' : "/";
  aws_endpoint_ = scheme + host_;
}

inline S3Reply S3Client::send_once(const S3Request& request) {
  auto* client = aws_client();
  auto* allocator = s3_library();
  const S3Owned<aws_http_message, aws_http_message_release> message{aws_http_message_new_request(allocator)};
  auto target = path_prefix_ + percent_encode_path(request.key);
  if (!request.query.empty()) target += '?' + request.query;
  aws_http_message_set_request_method(message.get(), s3_cursor(request.method));
  aws_http_message_set_request_path(message.get(), s3_cursor(target));
  add_s3_header(message.get(), "Host", host_);
  for (const auto& [name, value] : request.headers) add_s3_header(message.get(), name, value);

  S3Call call;
  aws_s3_meta_request_options options{};
  options.type = AWS_S3_META_REQUEST_TYPE_DEFAULT;
  options.operation_name = s3_cursor(request.operation);

  aws_s3_checksum_config checksum{};
  S3Owned<aws_input_stream, aws_input_stream_release> stream;
  if (request.body) {
    const auto size = total_bytes(*request.body);
    options.type = AWS_S3_META_REQUEST_TYPE_PUT_OBJECT;
    add_s3_header(message.get(), "Content-Length", std::to_string(size));
    if (request.upload == S3Upload::in_one_piece)
      options.multipart_upload_threshold = std::max<std::uint64_t>(size, config_.part_bytes);
    if (size <= config_.part_bytes || request.upload == S3Upload::in_one_piece) {
      // Servers differ in which checksum they check, but all check the MD5. For the parts of a large object the library
      // sends the MD5 only if it is asked for no other checksum.
      add_s3_header(message.get(), "Content-MD5", content_md5(*request.body));
      checksum.location = AWS_SCL_HEADER;
      checksum.checksum_algorithm = AWS_SCA_CRC64NVME;
      options.checksum_config = &checksum;
    }
    stream = S3PartsStream::make(*request.body);
    aws_http_message_set_body_stream(message.get(), stream.get());
  }

  aws_byte_buf buffer{};
  if (request.buffer) {
    buffer = aws_byte_buf_from_empty_array(request.buffer->data(), request.buffer->size());
    options.type = AWS_S3_META_REQUEST_TYPE_GET_OBJECT;
    options.recv_buffer = &buffer;
    options.progress_callback = S3Call::count;
  } else {
    options.body_callback = S3Call::take_body;
  }

  aws_uri endpoint{};
  auto address = s3_cursor(aws_endpoint_);
  if (aws_uri_init_parse(&endpoint, allocator, &address) != AWS_OP_SUCCESS) return {.error = aws_last_error()};
  options.endpoint = &endpoint;
  options.message = message.get();
  options.user_data = &call;
  options.headers_callback = S3Call::take_headers;
  options.finish_callback = S3Call::finish;
  options.shutdown_callback = S3Call::leave;
  auto* under_way = aws_s3_client_make_meta_request(client, &options);
  const int refused = under_way == nullptr ? aws_last_error() : 0;
  aws_uri_clean_up(&endpoint);
  if (refused != 0) return {.error = refused};
  call.finished.wait();
  aws_s3_meta_request_release(under_way);
  call.gone.wait();  // until then the library may read the body or write into the buffer
  if (no_credentials(call.reply)) call.reply.credentials_error = runtime_->credentials_error();
  return std::move(call.reply);
}

}  // namespace ddpxx::detail
