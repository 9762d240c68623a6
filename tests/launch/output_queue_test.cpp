#include <csignal>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>

namespace ddpxx::output_queue_test {
namespace {

using namespace detail;

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) read_end = Descriptor{ends[0]}, write_end = Descriptor{ends[1]};
  }
  std::string text() const {
    std::string result;
    char bytes[4096];
    for (ssize_t size = 0; (size = ::read(read_end.get(), bytes, sizeof bytes)) > 0;)
      result.append(bytes, static_cast<std::size_t>(size));
    return result;
  }
  Descriptor read_end, write_end;
};

TEST(OutputQueue, KeepsLinesWholeAndInOrder) {
  const Pipe pipe;
  OutputQueue queue;
  queue.push(pipe.write_end.get(), "[rank0]: ", "one");
  queue.push(pipe.write_end.get(), "[rank1]: ", "two");
  while (queue.waiting_for() >= 0) queue.write_some();
  EXPECT_EQ(pipe.text(), "[rank0]: one\n[rank1]: two\n");
}

TEST(OutputQueue, EndsTheStateOfAProgressBarBeforeALineOfAnotherRank) {
  const Pipe pipe;
  OutputQueue queue;
  const auto push = [&](const char* prefix, const char* line, char end) {
    queue.push(pipe.write_end.get(), prefix, line, end);
  };
  push("[rank0]: ", "10%", '\r');
  push("[rank0]: ", "20%", '\r');
  push("[rank1]: ", "x", '\n');
  push("[rank0]: ", "30%", '\r');
  push("[rank0]: ", "done", '\n');
  push("[rank1]: ", "y", '\n');
  while (queue.waiting_for() >= 0) queue.write_some();
  EXPECT_EQ(pipe.text(), "[rank0]: 10%\r[rank0]: 20%\r\n[rank1]: x\n[rank0]: 30%\r[rank0]: done\n[rank1]: y\n");
}

TEST(OutputQueue, FinishesALongLineBeforeAnotherOutputsNextOne) {
  const Pipe out, err;
  OutputQueue queue;
  queue.push(out.write_end.get(), "", std::string(10'000, 'x'));
  queue.push(err.write_end.get(), "", "short");
  std::string text;
  while (queue.waiting_for() == out.write_end.get()) queue.write_some(), text += out.text();
  EXPECT_EQ(text, std::string(10'000, 'x') + '\n');
  EXPECT_EQ(err.text(), "");
  queue.write_some();
  EXPECT_EQ(err.text(), "short\n");
  EXPECT_EQ(queue.waiting_for(), -1);
}

TEST(OutputQueue, IsFullAtItsBoundAndNotAfterItHasWritten) {
  const Pipe pipe;
  OutputQueue queue;
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(queue.full(), i * 2'000 >= static_cast<int>(OutputQueue::kFull));
    queue.push(pipe.write_end.get(), "", std::string(1'999, 'x'));
  }
  std::size_t written = 0;
  while (queue.waiting_for() >= 0) queue.write_some(), written += pipe.text().size();
  EXPECT_EQ(written, 600U * 2'000U);
  EXPECT_FALSE(queue.full());
}

TEST(OutputQueue, ForgetsTheRestOfALineWhoseOutputIsClosedMeanwhile) {
  Pipe pipe;
  const auto former = ::signal(SIGPIPE, SIG_IGN);
  OutputQueue queue;
  queue.push(pipe.write_end.get(), "", std::string(10'000, 'x'));
  queue.write_some();
  pipe.read_end.close();
  queue.write_some();
  EXPECT_EQ(queue.waiting_for(), -1);
  EXPECT_FALSE(queue.full());
  ::signal(SIGPIPE, former);
}

TEST(OutputQueue, DropsWhatAClosedOutputWasToGet) {
  Pipe closed;
  const Pipe open;
  const auto former = ::signal(SIGPIPE, SIG_IGN);
  closed.read_end.close();
  OutputQueue queue;
  for (int i = 0; i < 600; ++i) queue.push(closed.write_end.get(), "", std::string(1'999, 'x'));
  queue.push(open.write_end.get(), "", "still here");
  while (queue.waiting_for() >= 0) queue.write_some();
  EXPECT_EQ(open.text(), "still here\n");
  EXPECT_FALSE(queue.full());
  queue.push(closed.write_end.get(), "", "more");
  EXPECT_EQ(queue.waiting_for(), -1);
  ::signal(SIGPIPE, former);
}

}  // namespace
}  // namespace ddpxx::output_queue_test
