// A connection of two processes of a world, each of which has proven to the
// other that it knows the world's secret.
//
// TLS 1.3 with the secret as its pre-shared key, and an ephemeral key exchange
// beside it (RFC 8446, 2.2 and 4.2.9, psk_dhe_ke). No certificates: whoever
// lacks the secret can finish the handshake in neither role, and learns nothing
// of it. Then bytes go on encrypted, or, where both sides want it so, in the
// clear.

#ifndef WORKER_COLLECTIVE_TCP_CONNECTION_H_
#define WORKER_COLLECTIVE_TCP_CONNECTION_H_

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/rpc/host_port.h"
#include "worker/collective/tcp/socket.h"

namespace atl::collective {

// A secret, ready for handshakes. Thread-safe.
class WorldKey {
 public:
  // Each side of a connection changes its keys after so many bytes: AES-GCM is
  // good for 2^24.5 records of 16 KiB (RFC 8446, 5.5).
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
  Connection() = default;  // None.
  Connection(Connection&&) = default;
  Connection& operator=(Connection&&) = default;

  // Over a socket on which nothing has moved, and which does not block.
  // Handshake comes next.
  static absl::StatusOr<Connection> Dialled(
      UniqueFd fd, std::shared_ptr<const WorldKey> key);
  static absl::StatusOr<Connection> Accepted(
      UniqueFd fd, std::shared_ptr<const WorldKey> key);

  // Goes on with the handshake as far as it can now. True: it is done, and each
  // side knows that the other knows the secret. False: again, when poll has
  // events().
  //
  // PERMISSION_DENIED: the other side has another secret. INVALID_ARGUMENT: it
  // speaks something else. UNAVAILABLE: it closed the connection.
  absl::StatusOr<bool> Handshake();
  short events() const { return events_; }

  // As sendmsg and recvmsg that do not block: how many bytes have moved, 0 if
  // none can now, -1 if the connection has ended. Requires: the handshake is
  // done. A Send that moved nothing, or a part, is followed by one that begins
  // with the bytes that are left.
  ssize_t Send(absl::Span<const iovec> parts);
  ssize_t Receive(absl::Span<const iovec> parts);

  // What follows goes in the clear, both ways; the other side does the same
  // after the same bytes.
  void GoInTheClear() { ssl_.reset(); }

  // For poll.
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  static absl::StatusOr<Connection> Make(UniqueFd fd,
                                         std::shared_ptr<const WorldKey> key);
  absl::Status HandshakeError(int result) const;

  UniqueFd fd_;
  std::shared_ptr<const WorldKey> key_;
  std::unique_ptr<SSL, FreeSsl> ssl_;  // Null: in the clear. Ends before fd_.
  short events_ = 0;
  int64_t left_bytes_ = 0;             // To send until the next change of keys.
  std::unique_ptr<char[]> record_;     // Small pieces, together.
};

// Dials `endpoint` once, and does the handshake. INVALID_ARGUMENT and
// PERMISSION_DENIED as Handshake, NOT_FOUND and UNAVAILABLE as Dial.
absl::StatusOr<Connection> Connect(const rpc::HostPort& endpoint,
                                   std::shared_ptr<const WorldKey> key,
                                   absl::Time deadline);

// Sends all of `bytes`. UNAVAILABLE: the other end closed, or too late.
absl::Status SendAll(Connection& connection, absl::string_view bytes,
                     absl::Time deadline);

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_TCP_CONNECTION_H_
