// ddpxx/storage/s3/credentials_chain.hpp — searches for credentials in profiles and at metadata services, with a time
// limit.
#pragma once

#include <algorithm>
#include <aws/auth/credentials.h>
#include <aws/common/error.h>
#include <aws/common/task_scheduler.h>
#include <aws/http/http.h>
#include <aws/io/channel_bootstrap.h>
#include <aws/io/event_loop.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ddpxx/core/unix_time.hpp>
#include <ddpxx/storage/s3/library.hpp>
#include <ddpxx/storage/s3_config.hpp>

namespace ddpxx::detail {

using S3CredentialsProvider = S3Owned<aws_credentials_provider, aws_credentials_provider_release>;

/// Wraps the AWS library's credential chain with a time limit. The chain caches credentials and renews them five
/// minutes before they expire and every 15 minutes, but it waits forever for a service that does not answer, and drops
/// cached credentials if renewing fails. This class gives up a search after `credentials_timeout` and keeps using
/// cached credentials while they are valid. After a search that was given up it pauses for one timeout, and doubles the
/// pause each time, up to 32 timeouts; without valid credentials the pause is at most 2 timeouts. Several threads may
/// use one object.
class S3CredentialsChain {
 public:
  /// The caller owns `bootstrap` and `tls`, which must outlive this object.
  S3CredentialsChain(aws_client_bootstrap* bootstrap, aws_tls_ctx* tls, const S3Config& config)
      : bootstrap_{bootstrap}, tls_{tls}, profile_{config.profile}, timeout_{config.credentials_timeout} {
    make_chain();
  }
  S3CredentialsChain(const S3CredentialsChain&) = delete;
  S3CredentialsChain& operator=(const S3CredentialsChain&) = delete;
  ~S3CredentialsChain() = default;

  /// Returns the provider that signs requests with these credentials; null if the library cannot make one.
  static S3CredentialsProvider provider(std::shared_ptr<S3CredentialsChain> owner) {
    auto self = std::make_unique<std::shared_ptr<S3CredentialsChain>>(std::move(owner));
    aws_credentials_provider_delegate_options options{};
    options.shutdown_options = {
        [](void* kept) {
          const Kept<S3CredentialsChain> last{static_cast<std::shared_ptr<S3CredentialsChain>*>(kept)};
        },
        self.get()};
    options.get_credentials = start;
    options.delegate_user_data = self.get();
    S3CredentialsProvider made{aws_credentials_provider_new_delegate(s3_library(), &options)};
    if (made) static_cast<void>(self.release());
    return made;
  }

  /// The AWS library's error number of the last search; 0 if it found credentials.
  int error() const {
    const std::lock_guard lock{mutex_};
    return error_;
  }
  /// Drops what the chain has cached, so that the next request searches again. If that search fails, the credentials at
  /// hand are used as before.
  void renew() {
    S3CredentialsProvider old;  // destroyed after the lock is released: its destructor may call back
    const std::lock_guard lock{mutex_};
    old = std::move(chain_);
    make_chain();
  }

  /// True if a search that was given up is still running. Waiting for its threads could take forever.
  bool gave_up() const {
    const std::lock_guard lock{mutex_};
    return given_up_ > 0;
  }

 private:
  template <class T>
  using Kept = std::unique_ptr<std::shared_ptr<T>>;  // the argument of a C callback
  using Credentials = S3Owned<aws_credentials, aws_credentials_release>;
  using Clock = std::chrono::steady_clock;

  /// The search for one request. The chain and the deadline both hold it; the first of them to finish answers the
  /// request.
  struct Search {
    aws_on_get_credentials_callback_fn* answer;
    void* asker;
    const aws_credentials_provider* chain;
    aws_task deadline{};
    std::mutex mutex{};
    std::shared_ptr<S3CredentialsChain> owner{};  // null once the request is answered
    std::weak_ptr<S3CredentialsChain> given_up_by{};

    std::shared_ptr<S3CredentialsChain> take_owner() {
      const std::lock_guard lock{mutex};
      return std::exchange(owner, nullptr);
    }
    /// Takes the owner at the deadline, if the request is not answered yet. An answer that comes after this is late.
    std::shared_ptr<S3CredentialsChain> give_up() {
      const std::lock_guard lock{mutex};
      given_up_by = owner;
      return std::exchange(owner, nullptr);
    }
    std::shared_ptr<S3CredentialsChain> who_gave_up() {
      const std::lock_guard lock{mutex};
      return given_up_by.lock();
    }
  };

  static int start(void* self, aws_on_get_credentials_callback_fn* answer, void* asker);

  static void found(aws_credentials* credentials, int error, void* kept) {
    const Kept<Search> search{static_cast<std::shared_ptr<Search>*>(kept)};
    if (const auto owner = (*search)->take_owner())
      owner->finish(**search, credentials, error);
    else if (const auto others = (*search)->who_gave_up())
      others->note_late(credentials);
  }

  static void expire(aws_task*, void* kept, aws_task_status status) {
    const Kept<Search> search{static_cast<std::shared_ptr<Search>*>(kept)};
    if (status != AWS_TASK_STATUS_RUN_READY) return;
    const auto owner = (*search)->give_up();
    if (!owner) return;
    owner->note_given_up((*search)->chain);
    owner->finish(**search, nullptr, kGivenUp);
  }

  void note_given_up(const aws_credentials_provider* chain) {
    S3CredentialsProvider old;  // destroyed after the lock is released: its destructor may call back
    const std::lock_guard lock{mutex_};
    ++given_up_;
    if (chain_.get() != chain) return;  // another request that waited for this search was faster
    old = std::move(chain_);            // a new chain, since the next search in this one would wait as well
    make_chain();
    error_ = kGivenUp;  // the error of requests that do not search during the pause
    pause_ = pause_ == pause_.zero() ? timeout_ : std::min(2 * pause_, kMaxPauses * timeout_);
    ask_again_ = Clock::now() + longest_wait();
  }

  /// Returns the pause, shortened to the time for which the cached credentials are valid.
  std::chrono::milliseconds longest_wait() const {
    if (!last_ || !last_is_valid()) return std::min(pause_, kMaxPausesWithoutCredentials * timeout_);
    const auto left = expiry() - unix_seconds();
    const auto pause = std::chrono::ceil<std::chrono::seconds>(pause_);
    return left < static_cast<std::uint64_t>(pause.count()) ? std::chrono::seconds{left} : pause_;
  }

  /// Called when a search that was given up ends. Keeps its credentials, if it found any.
  void note_late(aws_credentials* credentials) {
    const std::lock_guard lock{mutex_};
    --given_up_;
    if (credentials == nullptr) return;
    keep(credentials);
  }

  void keep(aws_credentials* credentials) {
    aws_credentials_acquire(credentials);
    last_.reset(credentials);
    pause_ = pause_.zero();
    ask_again_ = {};
  }

  /// Returns the credentials for a request: those just found, or cached ones that are still valid, or null.
  Credentials usable(bool was_found) const {
    Credentials copy;
    if (last_ && (was_found || last_is_valid())) {
      aws_credentials_acquire(last_.get());
      copy.reset(last_.get());
    }
    return copy;
  }

  void finish(const Search& search, aws_credentials* credentials, int error);

  void make_chain() {
    aws_credentials_provider_chain_default_options options{};
    options.bootstrap = bootstrap_;
    options.tls_ctx = tls_;
    options.profile_name_override = s3_cursor(profile_);
    chain_.reset(aws_credentials_provider_new_chain_default(s3_library(), &options));
  }

  static std::uint64_t unix_seconds() { return static_cast<std::uint64_t>(unix_time()); }
  std::uint64_t expiry() const { return aws_credentials_get_expiration_timepoint_seconds(last_.get()); }
  bool last_is_valid() const { return expiry() > unix_seconds(); }

  static constexpr int kGivenUp = AWS_ERROR_HTTP_RESPONSE_FIRST_BYTE_TIMEOUT;
  static constexpr int kMaxPauses = 32;  // five minutes at a timeout of ten seconds
  static constexpr int kMaxPausesWithoutCredentials = 2;

  aws_client_bootstrap* bootstrap_;
  aws_tls_ctx* tls_;
  std::string profile_;
  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  S3CredentialsProvider chain_;
  Credentials last_;
  int error_ = 0;
  int given_up_ = 0;                    // searches that were given up and still run
  std::chrono::milliseconds pause_{0};  // after the last search that was given up; 0 after a success
  Clock::time_point ask_again_{};
};

inline int S3CredentialsChain::start(void* self, aws_on_get_credentials_callback_fn* answer, void* asker) {
  const auto& owner = *static_cast<std::shared_ptr<S3CredentialsChain>*>(self);
  S3CredentialsProvider chain;
  Credentials at_hand;
  int error = 0;
  {
    const std::lock_guard lock{owner->mutex_};
    if (!owner->chain_) return aws_raise_error(AWS_AUTH_SIGNING_NO_CREDENTIALS);
    if (Clock::now() < owner->ask_again_) {
      at_hand = owner->usable(false);
      error = std::max(owner->error_, 1);
    } else {
      chain.reset(aws_credentials_provider_acquire(owner->chain_.get()));
    }
  }
  if (!chain) {
    answer(at_hand.get(), at_hand ? AWS_ERROR_SUCCESS : error, asker);
    return AWS_OP_SUCCESS;
  }
  auto search = std::make_shared<Search>(answer, asker, chain.get());
  search->owner = owner;
  auto for_chain = std::make_unique<std::shared_ptr<Search>>(search);
  if (aws_credentials_provider_get_credentials(chain.get(), found, for_chain.get()) != AWS_OP_SUCCESS)
    return AWS_OP_ERR;
  static_cast<void>(for_chain.release());
  {
    const std::lock_guard lock{search->mutex};
    if (!search->owner) return AWS_OP_SUCCESS;  // the chain answered from its cache
  }
  auto* loop = aws_event_loop_group_get_next_loop(owner->bootstrap_->event_loop_group);
  std::uint64_t now = 0;
  aws_event_loop_current_clock_time(loop, &now);
  auto for_deadline = std::make_unique<std::shared_ptr<Search>>(search);
  aws_task_init(&search->deadline, expire, for_deadline.release(), "ddpxx_s3_credentials");
  const std::chrono::nanoseconds patience = owner->timeout_;
  aws_event_loop_schedule_task_future(loop, &search->deadline, now + static_cast<std::uint64_t>(patience.count()));
  return AWS_OP_SUCCESS;
}

inline void S3CredentialsChain::finish(const Search& search, aws_credentials* credentials, int error) {
  Credentials found;
  {
    const std::lock_guard lock{mutex_};
    error_ = credentials != nullptr ? 0 : std::max(error, 1);
    if (credentials != nullptr) keep(credentials);
    found = usable(credentials != nullptr);
    error = error_;
  }
  search.answer(found.get(), found ? AWS_ERROR_SUCCESS : error, search.asker);
}

}  // namespace ddpxx::detail
