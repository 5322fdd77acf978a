// A connection between two processes of a world. Each side proves to the other
// that it knows the world's secret.
//
// TLS 1.3 with the secret as pre-shared key and an ephemeral key exchange (RFC
// 8446, 2.2 and 4.2.9, psk_dhe_ke). No certificates: without the secret neither
// role can finish the handshake, and it reveals nothing of the secret. After
// that bytes are encrypted, or plain text if both sides agree.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"
#include "base/net/tls_layer.h"

namespace atl::collective {

// A secret, ready for handshakes. Thread-safe.
class WorldKey {
 public:
  // Each side changes its keys after this many bytes: AES-GCM is safe for
  // 2^24.5 records of 16 KiB (RFC 8446, 5.5).
  static constexpr int64_t kRekeyBytes = int64_t{64} << 30;

  // INVALID_ARGUMENT: `secret` is empty.
  static absl::StatusOr<std::shared_ptr<const WorldKey>> Create(
      absl::string_view secret, int64_t rekey_bytes = kRekeyBytes);
  ~WorldKey();

 private:
  friend class Connection;
  struct State;

  explicit WorldKey(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

// Thread-compatible.
class Connection {
 public:
  Connection() = default;  // Not connected.
  Connection(Connection&&) = default;
  Connection& operator=(Connection&&) = default;

  // Takes an unused, non-blocking socket, which then sends small messages at
  // once and detects a lost host in about 12 s. Call Handshake next.
  static absl::StatusOr<Connection> Dialled(
      UniqueFd fd, std::shared_ptr<const WorldKey> key);
  static absl::StatusOr<Connection> Accepted(
      UniqueFd fd, std::shared_ptr<const WorldKey> key);

  // Continues the handshake without blocking. True: done, and both sides have
  // proven the secret. False: call again when poll reports events().
  //
  // PERMISSION_DENIED: the other side has another secret. INVALID_ARGUMENT: it
  // speaks another protocol. UNAVAILABLE: it closed the connection.
  absl::StatusOr<bool> Handshake();
  short events() const { return events_; }

  // Like non-blocking sendmsg and recvmsg: bytes moved, 0 if none can move now,
  // -1 if the connection has ended. Requires: the handshake is done. After a
  // partial Send the next one must start with the remaining bytes.
  ssize_t Send(absl::Span<const iovec> parts);
  ssize_t Receive(absl::Span<const iovec> parts);

  // Ends encryption both ways; the other side must do so at the same byte.
  void GoInTheClear() { tls_.reset(); }

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

 private:
  static absl::StatusOr<Connection> Make(UniqueFd fd,
                                         std::shared_ptr<const WorldKey> key,
                                         net::TlsLayer::Side side);
  absl::Status HandshakeError() const;

  UniqueFd fd_;
  std::shared_ptr<const WorldKey> key_;
  std::unique_ptr<net::TlsLayer> tls_;  // Null: plain text. Ends before fd_.
  short events_ = 0;
  int64_t left_bytes_ = 0;             // To send until the next key change.
  std::unique_ptr<char[]> record_;     // Joins small pieces.
};

// Dials `endpoint` once, and does the handshake. INVALID_ARGUMENT and
// PERMISSION_DENIED as Handshake. NOT_FOUND: the host has no address.
// UNAVAILABLE: nobody listens, or no answer until `deadline`.
absl::StatusOr<Connection> Connect(const HostPort& endpoint,
                                   std::shared_ptr<const WorldKey> key,
                                   absl::Time deadline);

// Sends all of `bytes`. UNAVAILABLE: the peer closed, or `deadline` passed.
absl::Status SendAll(Connection& connection, absl::string_view bytes,
                     absl::Time deadline);

}  // namespace atl::collective
