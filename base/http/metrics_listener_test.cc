#include "base/http/metrics_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/metrics/metrics.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// A connection over loopback. Closed at the end.
class Connection {
 public:
  explicit Connection(int port) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(descriptor_, reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  ~Connection() { close(descriptor_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }

  // False once the peer has closed the connection.
  bool Send(const std::string& text) {
    return send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  // Waits a tenth of a second for the peer to close the connection.
  bool IsClosedSoon() {
    pollfd events = {descriptor_, POLLIN, 0};
    return poll(&events, 1, 100) != 0;
  }

  // Everything until the peer closes.
  std::string ReadToEnd() {
    std::string all;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = recv(descriptor_, buffer, sizeof(buffer), 0)) > 0) {
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int descriptor_;
  bool connected_ = false;
};

class MetricsListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = MetricsListener::Start({.address = "127.0.0.1:0"}, metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    listener_ = *std::move(started);
  }

  // The whole answer to a request.
  std::string Ask(const std::string& request) {
    Connection connection(listener_->port());
    EXPECT_TRUE(connection.Send(request));
    return connection.ReadToEnd();
  }
  std::string Get(const std::string& path, const std::string& headers = "") {
    return Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", headers,
                            "\r\n"));
  }

  Metrics metrics_;
  std::unique_ptr<MetricsListener> listener_;
};

bool Is(const std::string& answer, int status) {
  return absl::StartsWith(answer, absl::StrCat("HTTP/1.1 ", status, " "));
}

TEST_F(MetricsListenerTest, LivesBeforeItIsReady) {
  EXPECT_TRUE(Is(Get("/livez"), 200));
  EXPECT_TRUE(Is(Get("/healthz"), 200));
  const std::string starting = Get("/readyz");
  EXPECT_TRUE(Is(starting, 503)) << starting;
  EXPECT_TRUE(absl::EndsWith(starting, "\r\n\r\nstarting\n")) << starting;
  metrics_.SetReady(absl::OkStatus());
  EXPECT_TRUE(Is(Get("/readyz"), 200));
  metrics_.SetReady(absl::UnavailableError("the disk fails"));
  EXPECT_TRUE(absl::EndsWith(Get("/readyz"), "the disk fails\n"));
  EXPECT_TRUE(Is(Get("/livez"), 200));
}

TEST_F(MetricsListenerTest, ServesMetricsInTheFormatThatIsAskedFor) {
  const std::string text = Get("/metrics");
  EXPECT_TRUE(Is(text, 200));
  EXPECT_TRUE(absl::StrContains(
      text, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_TRUE(absl::StrContains(text, "\natoll_ready 0\n"));
  EXPECT_TRUE(absl::StrContains(text, "\nprocess_cpu_seconds_total "));
  const std::string open =
      Get("/metrics", "Accept: application/openmetrics-text\r\n");
  EXPECT_TRUE(absl::StrContains(
      open, "Content-Type: application/openmetrics-text; version=1.0.0; "));
  EXPECT_TRUE(absl::EndsWith(open, "\n# EOF\n"));
}

TEST_F(MetricsListenerTest, RefusesOtherMethodsAndPaths) {
  const std::string post = Ask("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Is(post, 405)) << post;
  EXPECT_TRUE(absl::StrContains(post, "Allow: GET, HEAD\r\n"));
  EXPECT_TRUE(Is(Get("/"), 404));
  EXPECT_TRUE(Is(Get("/../etc/passwd"), 404));
  const std::string head = Ask("HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Is(head, 200));
  EXPECT_TRUE(absl::EndsWith(head, "\r\n\r\n"));
}

TEST_F(MetricsListenerTest, RefusesABodyWithoutReadingIt) {
  EXPECT_TRUE(Is(Get("/metrics", "Content-Length: 1000000000\r\n"), 413));
  EXPECT_TRUE(Is(Get("/metrics", "Transfer-Encoding: chunked\r\n"), 413));
}

TEST_F(MetricsListenerTest, RefusesHeadersBeyondItsMemory) {
  const std::string answer =
      Get("/livez", absl::StrCat("X: ", std::string(64 << 10, 'x'), "\r\n"));
  EXPECT_FALSE(Is(answer, 200));
}

TEST_F(MetricsListenerTest, ServesOneRequestAConnection) {
  const std::string one = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string answers = Ask(absl::StrCat(one, one, one));
  EXPECT_EQ(answers.find("HTTP/1.1", 1), std::string::npos) << answers;
  EXPECT_TRUE(absl::StrContains(answers, "Connection: close\r\n"));
}

TEST_F(MetricsListenerTest, ClosesConnectionsBeyondItsLimit) {
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<Connection>(listener_->port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  // Those that it took are closed after a while, all others at once.
  for (const auto& connection : idle) EXPECT_EQ(connection->ReadToEnd(), "");
  EXPECT_TRUE(Is(Get("/livez"), 200));
}

TEST_F(MetricsListenerTest, EndsARequestThatNeverEnds) {
  Connection slow(listener_->port());
  ASSERT_TRUE(slow.Send("GET /livez HTTP/1.1\r\n"));
  // One byte at a time, more often than the idle limit.
  while (slow.Send("X") && !slow.IsClosedSoon()) {
  }
  EXPECT_TRUE(Is(Get("/livez"), 200));
}

TEST_F(MetricsListenerTest, TellsItsPort) {
  const std::string path = ::testing::TempDir() + "/port";
  const auto started = MetricsListener::Start(
      {.address = ":0", .port_file = path}, metrics_);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ((*started)->address(),
            absl::StrCat("127.0.0.1:", (*started)->port()));
  int port = 0;
  std::ifstream(path) >> port;
  EXPECT_EQ(port, (*started)->port());
}

TEST_F(MetricsListenerTest, NamesWhatIsWrongWithAnAddress) {
  const auto start = [&](const std::string& address) {
    return MetricsListener::Start({.address = address}, metrics_).status();
  };
  EXPECT_EQ(MetricsListener::Start({}, metrics_).value(), nullptr);
  EXPECT_EQ(start(listener_->address()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(start("localhost").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start("127.0.0.1:99999").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(start("nowhere").message(),
                                "--metrics-listen"));
  EXPECT_TRUE(start("localhost:0").ok());
}

}  // namespace
}  // namespace atl
