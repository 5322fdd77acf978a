#include "base/rpc/tls_stream/link_load.h"

#include <sys/socket.h>

#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr int64_t kMessageBytes = static_cast<int64_t>(kTlsMessageBytesMax) - 4;

net::WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

// A sender and a receiver, connected.
class LinkLoadTest : public ::testing::Test {
 protected:
  LinkLoadTest() {
    const absl::Time now = absl::Now();
    const KeyAndCertificate server =
        MakeAuthority("gate", now - absl::Hours(1), now + absl::Hours(1))
            .value();
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    std::thread peer([&] {
      receiver_ =
          TlsStream::Connect(*TlsContext::MakeClient("", "").value(),
                             UniqueFd(fds[1]), "localhost", nullptr, Long())
              .value();
    });
    sender_ =
        TlsStream::Accept(
            *TlsContext::MakeServer(server.cert_pem, server.key_pem).value(),
            UniqueFd(fds[0]), Long())
            .value();
    peer.join();
  }

  // Receives while this side sends for at most `time`.
  absl::StatusOr<LinkLoad> Carry(absl::Duration time, int64_t sent_max,
                                 int64_t received_max) {
    std::thread peer([&] {
      (void)SendLoad(*sender_, time, sent_max);
      sender_.reset();
    });
    absl::StatusOr<LinkLoad> load = ReceiveLoad(*receiver_, received_max);
    receiver_.reset();
    peer.join();
    return load;
  }

  std::unique_ptr<TlsStream> sender_;
  std::unique_ptr<TlsStream> receiver_;
};

TEST_F(LinkLoadTest, CountsWhatCame) {
  const auto load =
      Carry(absl::Minutes(2), 10 * kMessageBytes, 100 * kMessageBytes);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->bytes, 10 * kMessageBytes);
  EXPECT_GT(load->span, absl::ZeroDuration());
}

TEST_F(LinkLoadTest, SendsNoMoreThanItMay) {
  EXPECT_EQ(
      Carry(absl::Minutes(2), 10 * kMessageBytes - 1, kLinkLoadBytesMax)->bytes,
      9 * kMessageBytes);
}

TEST_F(LinkLoadTest, EndsWhenItsTimeIsOver) {
  EXPECT_EQ(
      Carry(absl::ZeroDuration(), kLinkLoadBytesMax, kLinkLoadBytesMax)->bytes,
      0);
}

TEST_F(LinkLoadTest, ASenderOfTooMuchIsAnError) {
  EXPECT_EQ(Carry(absl::Minutes(2), 10 * kMessageBytes, 9 * kMessageBytes)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::rpc
