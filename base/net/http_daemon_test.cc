#include "base/net/http_daemon.h"

#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/net/socket.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::net {
namespace {

WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

class HttpDaemonTest : public ::testing::Test {
 protected:
  ~HttpDaemonTest() override {
    if (listener_ != nullptr) listener_->Stop();
    daemon_.reset();
  }

  void Start(HttpDaemon::Spec spec = {}) {
    listener_ = BoundedListener::Listen({.address = {"127.0.0.1", 0}}).value();
    spec.listener = listener_.get();
    spec.flags = MHD_USE_EPOLL_INTERNAL_THREAD;
    spec.answer = [](void*, MHD_Connection* connection, const char*,
                     const char*, const char*, const char*, size_t*, void**) {
      MHD_Response* const response = MHD_create_response_from_buffer(
          0, nullptr, MHD_RESPMEM_PERSISTENT);
      const MHD_Result result = MHD_queue_response(connection, 200, response);
      MHD_destroy_response(response);
      return result;
    };
    daemon_ = HttpDaemon::Start(spec).value();
    listener_->Run([this](UniqueFd fd,
                          const BoundedListener::Connection& connection) {
      daemon_->Serve(std::move(fd), connection);
    });
  }

  UniqueFd Send(const std::string& bytes) {
    UniqueFd fd = Dial(listener_->address(), Long()).value();
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return fd;
  }

  // Reads until the daemon ends the connection.
  static std::string Read(const UniqueFd& fd) {
    std::string all;
    char part[1024];
    for (;;) {
      if (!WaitForSocket(fd.get(), POLLIN, Long()).ok()) return "timeout";
      const ssize_t size = recv(fd.get(), part, sizeof(part), 0);
      if (size <= 0) return all;
      all.append(part, static_cast<size_t>(size));
    }
  }

  void AwaitCount(int count) {
    while (listener_->count() != count || daemon_->count() != count) {
      std::this_thread::yield();
    }
  }

  std::unique_ptr<BoundedListener> listener_;
  std::unique_ptr<HttpDaemon> daemon_;
};

TEST_F(HttpDaemonTest, AnAnsweredConnectionHasNoPlace) {
  Start();
  const UniqueFd client = Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(Read(client), "HTTP/1.1 200 "));
  // The client's end is open still.
  AwaitCount(0);
  EXPECT_EQ(listener_->shut_count(), 0);
}

TEST_F(HttpDaemonTest, ALostPlaceEndsTheConnection) {
  std::vector<HttpDaemon::Id> ended;
  Start({.on_end = [&ended](HttpDaemon::Id id) { ended.push_back(id); }});
  const UniqueFd client = Send("GET");
  AwaitCount(1);
  listener_->Shut(1);
  EXPECT_EQ(Read(client), "");
  // Afterwards no thread of theirs runs.
  listener_->Stop();
  daemon_.reset();
  EXPECT_EQ(ended, std::vector<HttpDaemon::Id>{1});
}

TEST_F(HttpDaemonTest, BoundsItsConnections) {
  Start({.connection_count_max = 1});
  const UniqueFd first = Send("GET");
  AwaitCount(1);
  EXPECT_EQ(Read(Send("GET / HTTP/1.0\r\n\r\n")), "");
  AwaitCount(1);
}

TEST_F(HttpDaemonTest, EndsWithOpenConnections) {
  Start();
  const UniqueFd client = Send("GET");
  AwaitCount(1);
  listener_->Stop();
  daemon_.reset();
  EXPECT_EQ(Read(client), "");
  EXPECT_EQ(listener_->count(), 0);
}

}  // namespace
}  // namespace atl::net
