#include "base/net/tls_layer.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/net/socket.h"

namespace atl::net {
namespace {

// --- A socket BIO for OpenSSL: no signals, non-blocking ----------------------

int GetFd(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int WriteBio(BIO* bio, const char* bytes, size_t size, size_t* written) {
  BIO_clear_retry_flags(bio);
  const ssize_t count =
      send(GetFd(bio), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count < 0 && WouldBlock(errno)) BIO_set_retry_write(bio);
  if (count <= 0) return 0;
  *written = static_cast<size_t>(count);
  return 1;
}

int ReadBio(BIO* bio, char* bytes, size_t size, size_t* read) {
  BIO_clear_retry_flags(bio);
  const ssize_t count = recv(GetFd(bio), bytes, size, MSG_DONTWAIT);
  if (count < 0 && WouldBlock(errno)) BIO_set_retry_read(bio);
  if (count == 0) errno = 0;  // The peer closed.
  if (count <= 0) return 0;
  *read = static_cast<size_t>(count);
  return 1;
}

long ControlBio(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write_ex(made, WriteBio);
    BIO_meth_set_read_ex(made, ReadBio);
    BIO_meth_set_ctrl(made, ControlBio);
    return made;
  }();
  return method;
}

}  // namespace

TlsSettings MakeTls13Settings(const SSL_METHOD* method) {
  TlsSettings made(SSL_CTX_new(method));
  if (made == nullptr ||
      SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(made.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_num_tickets(made.get(), 0) != 1) {
    return nullptr;
  }
  SSL_CTX_set_session_cache_mode(made.get(), SSL_SESS_CACHE_OFF);
  return made;
}

std::unique_ptr<TlsLayer> TlsLayer::Make(SSL_CTX& settings, int fd, Side side) {
  std::unique_ptr<SSL, FreeTls> ssl(SSL_new(&settings));
  BIO* const bio = BIO_new(SocketMethod());
  if (ssl == nullptr || bio == nullptr) {
    BIO_free(bio);
    return nullptr;
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  if (side == Side::kConnects) {
    SSL_set_connect_state(ssl.get());
  } else {
    SSL_set_accept_state(ssl.get());
  }
  return std::unique_ptr<TlsLayer>(new TlsLayer(std::move(ssl)));
}

TlsLayer::Step TlsLayer::Handshake() {
  return Run([this] { return SSL_do_handshake(ssl()); });
}

TlsLayer::Step TlsLayer::Read(char* bytes, size_t size, size_t& count) {
  count = 0;
  return Run([&] { return SSL_read_ex(ssl(), bytes, size, &count); });
}

TlsLayer::Step TlsLayer::Write(absl::string_view bytes, size_t& count) {
  count = 0;
  return Run(
      [&] { return SSL_write_ex(ssl(), bytes.data(), bytes.size(), &count); });
}

TlsLayer::Step TlsLayer::Run(absl::FunctionRef<int()> call) {
  ERR_clear_error();
  errno = 0;
  const int result = call();
  if (result == 1) return Step::kDone;
  switch (SSL_get_error(ssl(), result)) {
    case SSL_ERROR_WANT_READ:
      return Step::kWaitsToRead;
    case SSL_ERROR_WANT_WRITE:
      return Step::kWaitsToWrite;
    default:
      return Step::kEnded;
  }
}

}  // namespace atl::net
