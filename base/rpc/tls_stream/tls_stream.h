// Messages over TLS 1.3, on a socket, without gRPC: for peers of whom nothing
// is known yet.
//
// A message is preceded by its length, 4 bytes, big-endian, at most
// kTlsMessageBytesMax. The length is checked before memory is taken for it.
// There are no older protocols, tickets, resumption, early data, compression
// or renegotiation. No write raises SIGPIPE.
//
// Memory of a stream: OpenSSL's state, a record of at most 16 KiB each way
// while bytes are on their way, a message, and during the handshake at most
// 128 KiB of a ClientHello and 32 KiB of certificates.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"
#include "base/net/tls_layer.h"

namespace atl::rpc {

inline constexpr size_t kTlsMessageBytesMax = 16 << 10;

// The settings that all streams of one side share. Thread-safe.
class TlsContext {
 public:
  // `cert_pem` is sent as it is, the own certificate first. Its streams ask
  // each client for a certificate, and go on without one.
  // INVALID_ARGUMENT: not a certificate with its key, or too weak a key.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> MakeServer(
      const std::string& cert_pem, const std::string& key_pem);
  // Empty: the streams have no certificate. Errors as MakeServer.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> MakeClient(
      const std::string& cert_pem, const std::string& key_pem);

 private:
  friend class TlsStream;
  TlsContext() = default;
  static absl::StatusOr<std::shared_ptr<TlsContext>> Make(
      const SSL_METHOD* method);
  absl::Status Use(const std::string& cert_pem, const std::string& key_pem);

  net::TlsSettings settings_;
};

// Thread-compatible. All waits of a stream together end at the limits with
// which it was made.
//
// Errors of every method:
//   DEADLINE_EXCEEDED, CANCELLED: as WaitForSocket.
//   UNAVAILABLE: the peer ended the connection, or does not speak TLS 1.3.
// After an error only the destructor may be called.
class TlsStream {
 public:
  // Judges the certificates that the peer shows, its own first, PEM. Called
  // during the handshake, before anything else is sent. A refusal ends the
  // handshake with its error. The handshake's end proves that the peer has the
  // certificate's key.
  using PeerCheck = std::function<absl::Status(const std::string& chain_pem)>;

  // The server's side of the handshake. The client's certificate, if it has
  // one, is not judged: the caller must.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Accept(
      const TlsContext& context, UniqueFd fd, const net::WaitLimits& limits);

  // The client's side, with the name `host` for the server to see.
  // Also: the errors of `check`.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Connect(
      const TlsContext& context, UniqueFd fd, const std::string& host,
      PeerCheck check, const net::WaitLimits& limits);

  // Says, without waiting, that nothing more will be sent, and closes.
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // INVALID_ARGUMENT: `message` is too long; nothing is sent.
  absl::Status Send(absl::string_view message);

  // INVALID_ARGUMENT: the peer's message is too long.
  absl::StatusOr<std::string> Receive();

  // For a client after the handshake: whether the server accepts certificates
  // of a CA that does not stand above its own, such as an island CA. nullopt:
  // it names no CA.
  std::optional<bool> AcceptsAnotherCa() const;

  // The certificates that the peer showed, its own first, PEM; empty: none.
  const std::string& peer_chain_pem() const { return peer_chain_pem_; }

 private:
  friend class TlsContext;

  TlsStream(UniqueFd fd, const net::WaitLimits& limits);
  static absl::StatusOr<std::unique_ptr<TlsStream>> Make(
      const TlsContext& context, UniqueFd fd, net::TlsLayer::Side side,
      const net::WaitLimits& limits);
  // OpenSSL's callback for the peer's certificates.
  static int OnCertificates(X509_STORE_CTX* store, void*);

  absl::Status Handshake();
  absl::Status ReadAll(char* bytes, size_t size);
  // Calls `step` until it is done, and waits in between.
  absl::Status Run(absl::FunctionRef<net::TlsLayer::Step()> step);
  // The error that ended the connection.
  absl::Status ReadError() const;

  const UniqueFd fd_;
  const net::WaitLimits limits_;
  std::unique_ptr<net::TlsLayer> tls_;  // Ends before fd_.
  PeerCheck check_;
  absl::Status checked_;  // The answer of check_.
  std::string peer_chain_pem_;
  bool is_open_ = false;  // After the handshake, until an error.
};

}  // namespace atl::rpc
