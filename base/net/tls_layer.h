// TLS 1.3 on a non-blocking socket: what all TLS without gRPC and libcurl has
// in common. No write raises SIGPIPE.
//
// Thread-compatible.

#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace atl::net {

struct FreeTls {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using TlsSettings = std::unique_ptr<SSL_CTX, FreeTls>;

// Settings without older protocols, tickets and resumption. They authenticate
// no peer yet. Null: OpenSSL cannot, or no memory is left.
TlsSettings MakeTls13Settings(const SSL_METHOD* method);

class TlsLayer {
 public:
  enum class Side { kConnects, kAccepts };

  enum class Step {
    kDone,
    kWaitsToRead,   // Call again when poll reports POLLIN.
    kWaitsToWrite,  // Call again when poll reports POLLOUT.
    // The peer closed, or an error. OpenSSL's queue of errors and errno, which
    // is 0 if the peer closed, say which.
    kEnded,
  };

  // Null: no memory is left. `fd` must outlive the layer.
  static std::unique_ptr<TlsLayer> Make(SSL_CTX& settings, int fd, Side side);

  Step Handshake();
  // Requires: the handshake is done. `count` bytes were moved; 0 if not kDone.
  // A Write that waits is called again with the same bytes.
  Step Read(char* bytes, size_t size, size_t& count);
  Step Write(absl::string_view bytes, size_t& count);

  SSL* ssl() const { return ssl_.get(); }

 private:
  explicit TlsLayer(std::unique_ptr<SSL, FreeTls> ssl) : ssl_(std::move(ssl)) {}
  // `call` returns 1 if it is done.
  Step Run(absl::FunctionRef<int()> call);

  const std::unique_ptr<SSL, FreeTls> ssl_;
};

}  // namespace atl::net
