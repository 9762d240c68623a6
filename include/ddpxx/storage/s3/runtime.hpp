// ddpxx/storage/s3/runtime.hpp — the threads, credentials and connections that a client's requests need.
#pragma once

#include <algorithm>
#include <aws/auth/credentials.h>
#include <aws/auth/signing_config.h>
#include <aws/http/connection.h>
#include <aws/io/channel_bootstrap.h>
#include <aws/io/event_loop.h>
#include <aws/io/host_resolver.h>
#include <aws/io/tls_channel_handler.h>
#include <aws/s3/s3_client.h>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/s3/credentials_chain.hpp>
#include <ddpxx/storage/s3/library.hpp>
#include <ddpxx/storage/s3_config.hpp>

namespace ddpxx::detail {

/// The threads and connections of one client. They do not exist in a forked process.
class S3Runtime {
 public:
  /// Errors  `storage` if certificates cannot be read or the machine's limits do not allow it.
  explicit S3Runtime(const S3Config& config) : S3Runtime{} {  // so that the destructor waits if one of these fails
    const auto at_hand = s3_credentials_at_hand(config);
    make_bootstrap();
    // Reading the system's certificates is the slowest part. A search for credentials may need TLS too.
    if (!is_plain(config) || !at_hand) make_tls(config);
    if (at_hand)
      take_credentials(*at_hand);
    else
      search_credentials(config);
    make_client(config);
  }
  S3Runtime(const S3Runtime&) = delete;
  S3Runtime& operator=(const S3Runtime&) = delete;

  /// Waits until all of its threads have ended.
  ~S3Runtime() {
    if (client_) {
      client_.reset();
      client_ended_.wait();
    }
    const bool still_searching = chain_ && chain_->gave_up();
    credentials_.reset();
    chain_.reset();
    tls_.reset();
    bootstrap_.reset();
    resolver_.reset();
    if (still_searching) {
      static_cast<void>(loops_.release());  // they may never end
    } else if (loops_) {
      loops_.reset();
      loops_ended_.wait();
    }
  }

  aws_s3_client* client() const noexcept { return client_.get(); }

  /// Lets the next request search for credentials again. Returns false if they were given and cannot be renewed.
  bool renew_credentials() {
    if (chain_) chain_->renew();
    return chain_ != nullptr;
  }

  /// The AWS library's error number of the last search for credentials; 0 if there are credentials.
  int credentials_error() const { return chain_ ? chain_->error() : 0; }

 private:
  S3Runtime() = default;

  /// True if the connection uses no TLS.
  static bool is_plain(const S3Config& config) { return config.endpoint.starts_with("http:"); }

  template <class Owner, class Handle>
  static void keep(Owner& owner, Handle* made, const char* what) {
    if (made == nullptr)
      throw Error{Errc::storage,
                  "cannot make ready for S3 (" + std::string{what} + "): " + aws_error_str(aws_last_error())};
    owner.reset(made);
  }

  void make_bootstrap() {
    constexpr unsigned kMaxLoops = 4;  // more loops do not make a transfer faster, and each rank has its own loops
    const aws_shutdown_callback_options ended{S3Event::set_from_c, &loops_ended_};
    aws_event_loop_group_options loops{};
    loops.loop_count = static_cast<std::uint16_t>(std::clamp(std::thread::hardware_concurrency(), 1U, kMaxLoops));
    loops.shutdown_options = &ended;
    keep(loops_, aws_event_loop_group_new(allocator_, &loops), "event loops");

    aws_host_resolver_default_options resolver{};
    resolver.max_entries = 16;
    resolver.el_group = loops_.get();
    keep(resolver_, aws_host_resolver_new_default(allocator_, &resolver), "names of hosts");

    aws_client_bootstrap_options bootstrap{};
    bootstrap.event_loop_group = loops_.get();
    bootstrap.host_resolver = resolver_.get();
    keep(bootstrap_, aws_client_bootstrap_new(allocator_, &bootstrap), "connections");
  }

  void make_tls(const S3Config& config) {
    aws_tls_ctx_options options{};
    aws_tls_ctx_options_init_default_client(&options, allocator_);
    const bool readable =
        config.ca_bundle.empty() || aws_tls_ctx_options_override_default_trust_store_from_path(
                                        &options, nullptr, config.ca_bundle.c_str()) == AWS_OP_SUCCESS;
    auto* made = readable ? aws_tls_client_ctx_new(allocator_, &options) : nullptr;
    aws_tls_ctx_options_clean_up(&options);
    const auto what = config.ca_bundle.empty() ? std::string{"the system's certificates"} : config.ca_bundle;
    keep(tls_, made, what.c_str());
  }

  void take_credentials(const S3Credentials& given) {
    aws_credentials_provider_static_options options{};
    options.access_key_id = s3_cursor(given.access_key);
    options.secret_access_key = s3_cursor(given.secret_key);
    options.session_token = s3_cursor(given.session_token);
    keep(credentials_, aws_credentials_provider_new_static(allocator_, &options), "credentials");
  }

  void search_credentials(const S3Config& config) {
    chain_ = std::make_shared<S3CredentialsChain>(bootstrap_.get(), tls_.get(), config);
    keep(credentials_, S3CredentialsChain::provider(chain_).release(), "credentials");
  }

  void make_client(const S3Config& config) {
    aws_signing_config_aws signing{};
    aws_s3_init_default_signing_config(&signing, s3_cursor(config.region), credentials_.get());
    aws_tls_connection_options tls{};
    if (!is_plain(config)) aws_tls_connection_options_init_from_ctx(&tls, tls_.get());
    aws_http_connection_monitoring_options stalls{};
    stalls.minimum_throughput_bytes_per_second = 1;
    stalls.allowable_throughput_failure_interval_seconds = static_cast<std::uint32_t>(config.stall_timeout.count());

    aws_s3_client_config options{};
    options.region = s3_cursor(config.region);
    options.client_bootstrap = bootstrap_.get();
    options.signing_config = &signing;
    options.tls_mode = is_plain(config) ? AWS_MR_TLS_DISABLED : AWS_MR_TLS_ENABLED;
    options.tls_connection_options = &tls;
    options.part_size = config.part_bytes;
    options.multipart_upload_threshold = config.part_bytes;
    options.max_active_connections_override = config.connections;
    options.compute_content_md5 = AWS_MR_CONTENT_MD5_ENABLED;
    options.monitoring_options = &stalls;
    options.connect_timeout_ms = static_cast<std::uint32_t>(config.connect_timeout.count());
    options.retry_config.retry_mode =
        config.retries == 0 ? AWS_S3_RETRY_MODE_NONE : AWS_S3_RETRY_MODE_EXPONENTIAL_BACKOFF;
    options.retry_config.max_retries = config.retries;
    options.retry_config.backoff_scale_factor_ms = static_cast<std::uint32_t>(config.first_pause.count());
    options.shutdown_callback = S3Event::set_from_c;
    options.shutdown_callback_user_data = &client_ended_;
    auto* made = aws_s3_client_new(allocator_, &options);
    aws_tls_connection_options_clean_up(&tls);
    keep(client_, made, "client");
  }

  aws_allocator* allocator_ = s3_library();
  S3Event loops_ended_;
  S3Event client_ended_;
  S3Owned<aws_event_loop_group, aws_event_loop_group_release> loops_;
  S3Owned<aws_host_resolver, aws_host_resolver_release> resolver_;
  S3Owned<aws_client_bootstrap, aws_client_bootstrap_release> bootstrap_;
  S3Owned<aws_tls_ctx, aws_tls_ctx_release> tls_;
  std::shared_ptr<S3CredentialsChain> chain_;  // null if the credentials need no search
  S3CredentialsProvider credentials_;
  S3Owned<aws_s3_client, aws_s3_client_release> client_;
};

}  // namespace ddpxx::detail
