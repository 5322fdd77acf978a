#include "base/rpc/tls_stream/tls_stream.h"

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

net::WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }
net::WaitLimits Soon() {
  return {SystemClock().Now() + absl::Milliseconds(20), -1};
}

KeyAndCertificate Issue(const std::string& name) {
  const absl::Time now = absl::Now();
  static const KeyAndCertificate* const authority = new KeyAndCertificate(
      MakeAuthority("ours", now - absl::Hours(1), now + absl::Hours(1))
          .value());
  return IssueCertificate(*authority, {.common_name = name,
                                       .hosts = {"gate.example.org"},
                                       .server_auth = true,
                                       .client_auth = true,
                                       .begin = now - absl::Minutes(5),
                                       .end = now + absl::Minutes(5)})
      .value();
}

// The two sides of a connection, each of which a function uses in a thread of
// its own.
class TlsStreamTest : public ::testing::Test {
 protected:
  using Stream = absl::StatusOr<std::unique_ptr<TlsStream>>;

  TlsStreamTest() : server_(Issue("server")) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    accepted_ = UniqueFd(fds[0]);
    dialled_ = UniqueFd(fds[1]);
  }

  Stream Accept(const net::WaitLimits& limits) {
    return TlsStream::Accept(
        *TlsContext::MakeServer(server_.cert_pem, server_.key_pem).value(),
        std::move(accepted_), limits);
  }
  Stream Connect(TlsStream::PeerCheck check = nullptr,
                 const KeyAndCertificate& own = {}) {
    return TlsStream::Connect(
        *TlsContext::MakeClient(own.cert_pem, own.key_pem).value(),
        std::move(dialled_), "gate.example.org", std::move(check), Long());
  }

  // Accepts with `limits`, in this thread, while `peer` uses dialled_.
  Stream AcceptFrom(const std::function<void()>& peer,
                    const net::WaitLimits& limits = Long()) {
    std::thread thread(peer);
    Stream stream = Accept(limits);
    thread.join();
    return stream;
  }

  void SendRaw(absl::string_view bytes) {
    EXPECT_EQ(send(dialled_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              bytes.size());
  }

  const KeyAndCertificate server_;
  UniqueFd accepted_;
  UniqueFd dialled_;
};

TEST_F(TlsStreamTest, CarriesMessagesOfAnyAllowedSizeBothWays) {
  const std::string longest(kTlsMessageBytesMax, 'x');
  std::thread client([&] {
    const Stream stream = Connect();
    ASSERT_TRUE(stream.ok()) << stream.status();
    for (const std::string& message :
         {std::string(), std::string("a\0b", 3), longest}) {
      EXPECT_TRUE((*stream)->Send(message).ok());
      EXPECT_EQ((*stream)->Receive().value(), message);
    }
  });
  const Stream stream = Accept(Long());
  EXPECT_TRUE(stream.ok()) << stream.status();
  for (int i = 0; stream.ok() && i < 3; ++i) {
    const absl::StatusOr<std::string> message = (*stream)->Receive();
    EXPECT_TRUE(message.ok()) << message.status();
    EXPECT_TRUE((*stream)->Send(message.value_or("")).ok());
  }
  client.join();
}

TEST_F(TlsStreamTest, RefusesToSendAMessageThatIsTooLong) {
  absl::Status sent;
  const Stream stream = AcceptFrom([&] {
    sent = Connect().value()->Send(std::string(kTlsMessageBytesMax + 1, 'x'));
  });
  EXPECT_EQ(sent.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.value()->Receive().status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(TlsStreamTest, TheServerSeesTheClientsCertificateIfThereIsOne) {
  const KeyAndCertificate own = Issue("client");
  const Stream stream =
      AcceptFrom([&] { EXPECT_TRUE(Connect(nullptr, own).ok()); });
  EXPECT_EQ(stream.value()->peer_chain_pem(), own.cert_pem);
}

TEST_F(TlsStreamTest, AClientNeedsNoCertificate) {
  const Stream stream = AcceptFrom([&] { EXPECT_TRUE(Connect().ok()); });
  EXPECT_EQ(stream.value()->peer_chain_pem(), "");
}

TEST_F(TlsStreamTest, ARefusedServerGetsNeitherCertificateNorMessage) {
  absl::Status refused;
  std::string shown;
  const Stream stream = AcceptFrom([&] {
    refused = Connect(
                  [&](const std::string& chain_pem) {
                    shown = chain_pem;
                    return absl::UnauthenticatedError("not this one");
                  },
                  Issue("client"))
                  .status();
  });
  EXPECT_EQ(refused, absl::UnauthenticatedError("not this one"));
  EXPECT_EQ(shown, server_.cert_pem);
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(stream.status().message(), "bad certificate"))
      << stream.status();
}

TEST_F(TlsStreamTest, AServerWithoutTheCertificatesKeyIsRefused) {
  // Its own key does not fit, so its signature does not either.
  const absl::Status status =
      TlsContext::MakeServer(server_.cert_pem, Issue("other").key_pem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "mismatch")) << status;
}

TEST_F(TlsStreamTest, ATooLongLengthIsRefusedBeforeItsBytesCome) {
  const auto announce = [&](unsigned size) {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, dialled_.get());
    EXPECT_EQ(SSL_connect(ssl), 1);
    const unsigned char prefix[] = {static_cast<unsigned char>(size >> 24),
                                    static_cast<unsigned char>(size >> 16),
                                    static_cast<unsigned char>(size >> 8),
                                    static_cast<unsigned char>(size)};
    EXPECT_EQ(SSL_write(ssl, prefix, sizeof(prefix)), sizeof(prefix));
    SSL_free(ssl);
    SSL_CTX_free(context);
  };
  const Stream stream = AcceptFrom([&] { announce(kTlsMessageBytesMax + 1); });
  const absl::Status status = stream.value()->Receive().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "16385 bytes")) << status;
}

TEST_F(TlsStreamTest, OlderProtocolsAreRefused) {
  const Stream stream = AcceptFrom([&] {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, dialled_.get());
    EXPECT_NE(SSL_connect(ssl), 1);
    SSL_free(ssl);
    SSL_CTX_free(context);
  });
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      absl::StrContains(stream.status().message(), "unsupported protocol"))
      << stream.status();
}

TEST_F(TlsStreamTest, NoTicketIsSent) {
  bool asked = false;
  int resumable = -1;
  std::thread client([&] {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, dialled_.get());
    EXPECT_EQ(SSL_connect(ssl), 1);
    char bytes[16];
    asked = SSL_read(ssl, bytes, sizeof(bytes)) > 0;
    resumable = SSL_SESSION_is_resumable(SSL_get_session(ssl));
    SSL_free(ssl);
    SSL_CTX_free(context);
  });
  EXPECT_TRUE(Accept(Long()).value()->Send("done").ok());
  client.join();
  EXPECT_TRUE(asked);
  EXPECT_EQ(resumable, 0);
}

TEST_F(TlsStreamTest, GarbageEndsTheHandshake) {
  const Stream stream = AcceptFrom([&] { SendRaw("GET / HTTP/1.1\r\n\r\n"); });
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsStreamTest, APeerThatLeavesEndsTheHandshake) {
  const Stream stream = AcceptFrom([&] { dialled_ = UniqueFd(); });
  EXPECT_EQ(stream.status(),
            absl::UnavailableError("the peer closed the connection"));
}

TEST_F(TlsStreamTest, ASilentPeerIsLeftAtTheDeadline) {
  EXPECT_EQ(Accept(Soon()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(TlsStreamTest, AWakerStopsAHandshake) {
  const UniqueFd stop = MakeWaker().value();
  net::WaitLimits limits = Long();
  limits.stop_fd = stop.get();
  const Stream stream = AcceptFrom([&] { SetWaker(stop.get()); }, limits);
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(TlsStreamTest, AWakerStopsAStreamWhosePeerIsSilent) {
  const UniqueFd stop = MakeWaker().value();
  net::WaitLimits limits = Long();
  limits.stop_fd = stop.get();
  std::unique_ptr<TlsStream> client;
  const Stream stream = AcceptFrom([&] { client = Connect().value(); }, limits);
  SetWaker(stop.get());
  EXPECT_EQ(stream.value()->Receive().status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(TlsStreamTest, AReaderThatIsGoneRaisesNoSignal) {
  std::unique_ptr<TlsStream> client;
  Stream stream = AcceptFrom([&] { client = Connect().value(); });
  client.reset();
  absl::Status status;
  for (int i = 0; status.ok() && i < 100; ++i) {
    status = (*stream)->Send(std::string(kTlsMessageBytesMax, 'x'));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace atl::rpc
