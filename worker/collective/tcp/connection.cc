#include "worker/collective/tcp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/net/socket.h"
#include "base/status/status_macros.h"

namespace atl::collective {
namespace {

using Step = net::TlsLayer::Step;

constexpr char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherNumber[] = {0x13, 0x01};
// Sent unencrypted, so it must reveal nothing.
constexpr char kIdentity[] = "atoll world";
constexpr size_t kRecordBytes = 16384;

constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveCount = 3;
constexpr int kUserTimeoutMs = 12'000;

// Sends small messages at once; detects a lost host in about 12 s.
void Tune(int fd) {
  const auto set = [fd](int level, int option, int value) {
    // A socket works without these options.
    (void)setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveCount);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

std::string PeerText(int fd) {
  const absl::StatusOr<HostPort> peer = net::PeerAddress(fd);
  return peer.ok() ? JoinHostPort(peer->host, peer->port) : "the peer";
}

}  // namespace

struct WorldKey::State {
  // A session that holds only the key; null if out of memory.
  SSL_SESSION* MakeSession(SSL* ssl) const {
    SSL_SESSION* const session = SSL_SESSION_new();
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipherNumber);
    if (session == nullptr || cipher == nullptr ||
        SSL_SESSION_set1_master_key(session, key.data(), key.size()) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }

  static const State& Of(SSL* ssl) {
    return *static_cast<const State*>(
        SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  }

  // The dialling side offers the key.
  static int Use(SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** id,
                 size_t* id_size, SSL_SESSION** session) {
    *id = reinterpret_cast<const unsigned char*>(kIdentity);
    *id_size = sizeof(kIdentity) - 1;
    *session = Of(ssl).MakeSession(ssl);
    return *session != nullptr ? 1 : 0;
  }
  // The accepting side finds it by name. Without it the handshake fails.
  static int Find(SSL* ssl, const unsigned char* id, size_t id_size,
                  SSL_SESSION** session) {
    *session = nullptr;
    if (absl::string_view(reinterpret_cast<const char*>(id), id_size) ==
        kIdentity) {
      *session = Of(ssl).MakeSession(ssl);
    }
    return 1;
  }

  codec::Sha256Digest key;
  int64_t rekey_bytes = 0;
  net::TlsSettings settings;
};

WorldKey::WorldKey(std::unique_ptr<State> state) : state_(std::move(state)) {}
WorldKey::~WorldKey() = default;

absl::StatusOr<std::shared_ptr<const WorldKey>> WorldKey::Create(
    absl::string_view secret, int64_t rekey_bytes) {
  if (secret.empty()) {
    return absl::InvalidArgumentError("a world needs a secret");
  }
  auto state = std::make_unique<State>();
  state->key = codec::ComputeSha256(absl::StrCat("atoll world key\n", secret));
  state->rekey_bytes = rekey_bytes;
  state->settings = net::MakeTls13Settings(TLS_method());
  SSL_CTX* const context = state->settings.get();
  if (context == nullptr || SSL_CTX_set_ciphersuites(context, kCipher) != 1) {
    return absl::InternalError("OpenSSL has no TLS 1.3 with AES-128-GCM");
  }
  SSL_CTX_set_app_data(context, state.get());
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_use_session_callback(context, State::Use);
  SSL_CTX_set_psk_find_session_callback(context, State::Find);
  return std::shared_ptr<const WorldKey>(new WorldKey(std::move(state)));
}

absl::StatusOr<Connection> Connection::Make(UniqueFd fd,
                                            std::shared_ptr<const WorldKey> key,
                                            net::TlsLayer::Side side) {
  Connection made;
  made.tls_ = net::TlsLayer::Make(*key->state_->settings, fd.get(), side);
  if (made.tls_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for a connection");
  }
  Tune(fd.get());
  made.fd_ = std::move(fd);
  made.left_bytes_ = key->state_->rekey_bytes;
  made.key_ = std::move(key);
  return made;
}

absl::StatusOr<Connection> Connection::Dialled(
    UniqueFd fd, std::shared_ptr<const WorldKey> key) {
  ASSIGN_OR_RETURN(Connection made, Make(std::move(fd), std::move(key),
                                         net::TlsLayer::Side::kConnects));
  // Rejects any certificate, because no authority is trusted.
  SSL_set_verify(made.tls_->ssl(), SSL_VERIFY_PEER, nullptr);
  made.events_ = POLLOUT;
  return made;
}

absl::StatusOr<Connection> Connection::Accepted(
    UniqueFd fd, std::shared_ptr<const WorldKey> key) {
  ASSIGN_OR_RETURN(Connection made, Make(std::move(fd), std::move(key),
                                         net::TlsLayer::Side::kAccepts));
  made.events_ = POLLIN;
  return made;
}

absl::StatusOr<bool> Connection::Handshake() {
  switch (tls_->Handshake()) {
    case Step::kDone:
      // Guards against any other way to authenticate.
      if (SSL_session_reused(tls_->ssl()) != 1) {
        return absl::PermissionDeniedError(
            absl::StrCat(PeerText(fd()), " did not prove the secret"));
      }
      events_ = POLLIN;
      return true;
    case Step::kWaitsToRead:
      events_ = POLLIN;
      return false;
    case Step::kWaitsToWrite:
      events_ = POLLOUT;
      return false;
    case Step::kEnded:
      break;
  }
  return HandshakeError();
}

absl::Status Connection::HandshakeError() const {
  const unsigned long error = ERR_peek_error();
  if (error == 0) {
    return absl::UnavailableError(absl::StrCat(
        PeerText(fd()), " closed the connection during the handshake"));
  }
  const char* const text = ERR_reason_error_string(error);
  const std::string why = text != nullptr ? text : "unknown";
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
      return absl::InvalidArgumentError(absl::StrCat(
          PeerText(fd()), " is not a process of a world (", why, ")"));
    default:
      return absl::PermissionDeniedError(
          absl::StrCat(PeerText(fd()), " has another secret (", why, ")"));
  }
}

ssize_t Connection::Send(absl::Span<const iovec> parts) {
  if (tls_ == nullptr) {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t count =
        sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return count < 0 && net::WouldBlock(errno) ? 0 : count;
  }
  // Changes keys only between records.
  if (left_bytes_ <= 0 &&
      SSL_key_update(tls_->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    left_bytes_ = key_->state_->rekey_bytes;
  }
  // One record each time; a header shares it with the bytes that follow.
  absl::Span<const iovec> left = parts;
  absl::string_view record(static_cast<const char*>(left[0].iov_base),
                           std::min(left[0].iov_len, kRecordBytes));
  if (record.size() < kRecordBytes && left.size() > 1) {
    if (record_ == nullptr) record_ = std::make_unique<char[]>(kRecordBytes);
    size_t size = 0;
    for (const iovec& part : left) {
      const size_t count = std::min(part.iov_len, kRecordBytes - size);
      std::memcpy(record_.get() + size, part.iov_base, count);
      size += count;
    }
    record = {record_.get(), size};
  }
  size_t written = 0;
  if (tls_->Write(record, written) == Step::kEnded) return -1;
  left_bytes_ -= static_cast<int64_t>(written);
  return static_cast<ssize_t>(written);
}

ssize_t Connection::Receive(absl::Span<const iovec> parts) {
  if (tls_ == nullptr) {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t count = recvmsg(fd(), &message, MSG_DONTWAIT);
    if (count < 0 && net::WouldBlock(errno)) return 0;
    return count == 0 ? -1 : count;
  }
  ssize_t total = 0;
  for (const iovec& part : parts) {
    for (size_t filled = 0; filled < part.iov_len;) {
      size_t count = 0;
      const Step step = tls_->Read(static_cast<char*>(part.iov_base) + filled,
                                   part.iov_len - filled, count);
      // Reports the bytes that came before the end first.
      if (step == Step::kEnded && total == 0) return -1;
      if (step != Step::kDone) return total;
      filled += count;
      total += static_cast<ssize_t>(count);
    }
  }
  return total;
}

absl::StatusOr<Connection> Connect(const HostPort& endpoint,
                                   std::shared_ptr<const WorldKey> key,
                                   absl::Time deadline) {
  const std::string where = JoinHostPort(endpoint.host, endpoint.port);
  absl::StatusOr<UniqueFd> fd = net::Dial(endpoint, {deadline});
  if (!fd.ok()) {
    const std::string text =
        absl::StrCat("dialling ", where, ": ", fd.status().message());
    return absl::IsNotFound(fd.status()) ? absl::NotFoundError(text)
                                         : absl::UnavailableError(text);
  }
  ASSIGN_OR_RETURN(Connection connection,
                   Connection::Dialled(*std::move(fd), std::move(key)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool done, connection.Handshake());
    if (done) return connection;
    if (!net::WaitForSocket(connection.fd(), connection.events(), {deadline})
             .ok()) {
      return absl::UnavailableError(
          absl::StrCat(where, " did not finish the handshake in time"));
    }
  }
}

absl::Status SendAll(Connection& connection, absl::string_view bytes,
                     absl::Time deadline) {
  while (!bytes.empty()) {
    const iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t sent = connection.Send({&part, 1});
    if (sent < 0) return absl::UnavailableError("send: the connection ended");
    bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent == 0 &&
        !net::WaitForSocket(connection.fd(), POLLOUT, {deadline}).ok()) {
      return absl::UnavailableError("send: too late");
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::collective
