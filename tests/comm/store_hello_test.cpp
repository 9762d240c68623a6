#include <cstddef>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <ddpxx/comm/store_credentials.hpp>
#include <ddpxx/comm/store_hello.hpp>

namespace ddpxx::store_hello_test {
namespace {

using detail::read_hello;
using State = detail::ReceivedHello::State;

TEST(StoreHello, IsReadAsItWasWritten) {
  for (const StoreCredentials& credentials : {StoreCredentials{.token = "secret", .run_id = "run"}, StoreCredentials{},
                                              StoreCredentials{.token = std::string(kMaxCredentialBytes, 't'),
                                              .run_id = std::string(kMaxCredentialBytes, 'r')}}) {
    const auto message = detail::hello_message(credentials);
    const auto hello = read_hello(message);
    EXPECT_EQ(hello.state, State::complete);
    EXPECT_EQ(hello.size, message.size());
    EXPECT_EQ(hello.token, credentials.token);
    EXPECT_EQ(hello.run_id, credentials.run_id);
  }
}

TEST(StoreHello, IsIncompleteWithoutItsLastByteAndNamesNoSizeBeyondItsEnd) {
  const auto message = detail::hello_message({.token = "secret", .run_id = "run"});
  for (std::size_t size = 0; size < message.size(); ++size) {
    const auto hello = read_hello(std::string_view{message}.substr(0, size));
    EXPECT_EQ(hello.state, State::incomplete) << size;
    EXPECT_GT(hello.size, size);
    EXPECT_LE(hello.size, message.size());
  }
}

TEST(StoreHello, IsForeignFromTheFirstWrongByteOn) {
  for (const char* text : {"G", "GET / HTTP/1.1\r\n\r\n", "ddpyy", "ddpxx and more"})
    EXPECT_EQ(read_hello(text).state, State::foreign) << text;
}

TEST(StoreHello, OfAnotherVersionIsKnownByItsHeader) {
  const std::string header{"ddpxx\0\0\xFF\xFF\xFF\xFF\xFF", 12};
  EXPECT_EQ(read_hello(header).state, State::other_version);
  EXPECT_EQ(read_hello(header.substr(0, header.size() - 1)).state, State::incomplete);
}

TEST(StoreHello, IsMalformedIfASizeExceedsItsLimit) {
  const std::string too_long(kMaxCredentialBytes + 1, 'x');
  for (const auto& message : {detail::hello_message({.token = too_long}), detail::hello_message({.run_id = too_long})})
    EXPECT_EQ(read_hello(std::string_view{message}.substr(0, detail::kHelloHeaderBytes)).state, State::malformed);
}

}  // namespace
}  // namespace ddpxx::store_hello_test
