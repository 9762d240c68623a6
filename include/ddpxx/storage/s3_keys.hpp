// ddpxx/storage/s3_keys.hpp — the search for keys: in the environment, in profiles, at the machine's metadata service.
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
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_library.hpp>

namespace ddpxx {

using S3CredentialsProvider = S3Owned<aws_credentials_provider, aws_credentials_provider_release>;

/// Asks the AWS library's chain of places, which keeps what it finds and asks again five minutes before the keys expire
/// and every quarter of an hour. The chain waits for ever where a service takes a question and does not answer, and
/// forgets the keys at hand where asking again fails; this ends the search after a while, and uses them as long as
/// they are valid. Threads may share it.
class S3Keys {
 public:
  /// `bootstrap` and `tls` stay the caller's and outlive this.
  S3Keys(aws_client_bootstrap* bootstrap, aws_tls_ctx* tls, const S3Config& config)
      : bootstrap_{bootstrap}, tls_{tls}, profile_{config.profile}, timeout_{config.credentials_timeout} {
    renew();
  }
  S3Keys(const S3Keys&) = delete;
  S3Keys& operator=(const S3Keys&) = delete;
  ~S3Keys() = default;

  /// What requests are signed with; none where the library cannot make one.
  static S3CredentialsProvider provider(std::shared_ptr<S3Keys> keys) {
    auto self = std::make_unique<std::shared_ptr<S3Keys>>(std::move(keys));
    aws_credentials_provider_delegate_options options{};
    options.shutdown_options = {
        [](void* kept) { const Kept<S3Keys> last{static_cast<std::shared_ptr<S3Keys>*>(kept)}; }, self.get()};
    options.get_credentials = start;
    options.delegate_user_data = self.get();
    S3CredentialsProvider made{aws_credentials_provider_new_delegate(s3_library(), &options)};
    if (made) static_cast<void>(self.release());
    return made;
  }

  /// Why the last search found none: the AWS library's number; 0 after a success.
  int error() const {
    const std::lock_guard lock{mutex_};
    return error_;
  }
  /// Whether a search was given up that may still be under way: it keeps threads that nobody can wait for.
  bool gave_up() const {
    const std::lock_guard lock{mutex_};
    return gave_up_;
  }

 private:
  template <class T>
  using Kept = std::unique_ptr<std::shared_ptr<T>>;  // what a callback of C is given
  using Credentials = S3Owned<aws_credentials, aws_credentials_release>;

  /// One request's question. The chain and the deadline both hold it; whoever comes first answers.
  struct Search {
    aws_on_get_credentials_callback_fn* answer;
    void* asker;
    const aws_credentials_provider* chain;
    aws_task deadline{};
    std::mutex mutex{};
    std::shared_ptr<S3Keys> keys{};  // none once answered

    std::shared_ptr<S3Keys> take_keys() {
      const std::lock_guard lock{mutex};
      return std::exchange(keys, nullptr);
    }
  };

  static int start(void* self, aws_on_get_credentials_callback_fn* answer, void* asker);

  static void found(aws_credentials* credentials, int error, void* kept) {
    const Kept<Search> search{static_cast<std::shared_ptr<Search>*>(kept)};
    if (const auto keys = (*search)->take_keys()) keys->finish(**search, credentials, error);
  }

  static void expire(aws_task*, void* kept, aws_task_status status) {
    const Kept<Search> search{static_cast<std::shared_ptr<Search>*>(kept)};
    if (status != AWS_TASK_STATUS_RUN_READY) return;
    const auto keys = (*search)->take_keys();
    if (!keys) return;
    {
      const std::lock_guard lock{keys->mutex_};
      keys->gave_up_ = true;
      if (keys->chain_.get() == (*search)->chain) keys->renew();  // the old one makes whoever asks next wait, too
    }
    keys->finish(**search, nullptr, AWS_ERROR_HTTP_RESPONSE_FIRST_BYTE_TIMEOUT);
  }

  void finish(const Search& search, aws_credentials* credentials, int error);

  void renew() {
    aws_credentials_provider_chain_default_options options{};
    options.bootstrap = bootstrap_;
    options.tls_ctx = tls_;
    options.profile_name_override = s3_cursor(profile_);
    chain_.reset(aws_credentials_provider_new_chain_default(s3_library(), &options));
  }

  bool last_is_valid() const {
    const std::chrono::seconds now{std::time(nullptr)};
    return aws_credentials_get_expiration_timepoint_seconds(last_.get()) > static_cast<std::uint64_t>(now.count());
  }

  aws_client_bootstrap* bootstrap_;
  aws_tls_ctx* tls_;
  std::string profile_;
  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  S3CredentialsProvider chain_;
  Credentials last_;
  int error_ = 0;
  bool gave_up_ = false;
};

inline int S3Keys::start(void* self, aws_on_get_credentials_callback_fn* answer, void* asker) {
  const auto& keys = *static_cast<std::shared_ptr<S3Keys>*>(self);
  S3CredentialsProvider chain;
  {
    const std::lock_guard lock{keys->mutex_};
    if (!keys->chain_) return aws_raise_error(AWS_AUTH_SIGNING_NO_CREDENTIALS);
    chain.reset(aws_credentials_provider_acquire(keys->chain_.get()));
  }
  auto search = std::make_shared<Search>(answer, asker, chain.get());
  search->keys = keys;
  auto for_chain = std::make_unique<std::shared_ptr<Search>>(search);
  if (aws_credentials_provider_get_credentials(chain.get(), found, for_chain.get()) != AWS_OP_SUCCESS)
    return AWS_OP_ERR;
  static_cast<void>(for_chain.release());
  {
    const std::lock_guard lock{search->mutex};
    if (!search->keys) return AWS_OP_SUCCESS;  // keys that the chain had at hand
  }
  auto* loop = aws_event_loop_group_get_next_loop(keys->bootstrap_->event_loop_group);
  std::uint64_t now = 0;
  aws_event_loop_current_clock_time(loop, &now);
  auto for_deadline = std::make_unique<std::shared_ptr<Search>>(search);
  aws_task_init(&search->deadline, expire, for_deadline.release(), "ddpxx_s3_keys");
  const std::chrono::nanoseconds patience = keys->timeout_;
  aws_event_loop_schedule_task_future(loop, &search->deadline, now + static_cast<std::uint64_t>(patience.count()));
  return AWS_OP_SUCCESS;
}

inline void S3Keys::finish(const Search& search, aws_credentials* credentials, int error) {
  Credentials usable;
  {
    const std::lock_guard lock{mutex_};
    error_ = credentials != nullptr ? 0 : std::max(error, 1);
    if (credentials != nullptr) {
      aws_credentials_acquire(credentials);
      last_.reset(credentials);
    }
    if (last_ && (credentials != nullptr || last_is_valid())) {
      aws_credentials_acquire(last_.get());
      usable.reset(last_.get());
    }
    error = error_;
  }
  search.answer(usable.get(), usable ? AWS_ERROR_SUCCESS : error, search.asker);
}

}  // namespace ddpxx
