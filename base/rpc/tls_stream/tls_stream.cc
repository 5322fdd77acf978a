#include "base/rpc/tls_stream/tls_stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/host_port/host_port.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

// Without the groups of finite fields, which cost a server far more than these.
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr long kCertificatesBytesMax = 32 << 10;
constexpr size_t kLengthBytes = 4;

// The reason of OpenSSL's newest error; empty if there is none.
std::string OpensslReason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "" : reason;
}

bool IsIpAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

// --- TlsContext --------------------------------------------------------------

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::Make(
    const SSL_METHOD* method) {
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->settings_ = net::MakeTls13Settings(method);
  SSL_CTX* const context = made->settings_.get();
  if (context == nullptr || SSL_CTX_set1_groups_list(context, kGroups) != 1) {
    return absl::InternalError("OpenSSL has no TLS 1.3");
  }
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  // Otherwise a read that meets messages of TLS alone goes on, past any
  // deadline.
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_max_cert_list(context, kCertificatesBytesMax);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context, TlsStream::OnCertificates, nullptr);
  return made;
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::MakeServer(
    const std::string& cert_pem, const std::string& key_pem) {
  ASSIGN_OR_RETURN(const std::shared_ptr<TlsContext> made,
                   Make(TLS_server_method()));
  RETURN_IF_ERROR(made->Use(cert_pem, key_pem));
  return made;
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::MakeClient(
    const std::string& cert_pem, const std::string& key_pem) {
  ASSIGN_OR_RETURN(const std::shared_ptr<TlsContext> made,
                   Make(TLS_client_method()));
  if (!cert_pem.empty() || !key_pem.empty()) {
    RETURN_IF_ERROR(made->Use(cert_pem, key_pem));
  }
  return made;
}

absl::Status TlsContext::Use(const std::string& cert_pem,
                             const std::string& key_pem) {
  ERR_clear_error();
  SSL_CTX* const context = settings_.get();
  const std::vector<Certificate> chain = ReadCertificates(cert_pem);
  const PrivateKey key = ReadPrivateKey(key_pem);
  bool used = !chain.empty() && key != nullptr &&
              SSL_CTX_use_certificate(context, chain[0].get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1 &&
              SSL_CTX_check_private_key(context) == 1;
  for (size_t i = 1; used && i < chain.size(); ++i) {
    used = SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  }
  if (used) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "TLS cannot use the certificate with its key: ", OpensslReason()));
}

// --- TlsStream ---------------------------------------------------------------

TlsStream::TlsStream(UniqueFd fd, const net::WaitLimits& limits)
    : fd_(std::move(fd)), limits_(limits) {}

TlsStream::~TlsStream() {
  if (is_open_) {
    ERR_clear_error();
    SSL_shutdown(tls_->ssl());
  }
  tls_.reset();
  ERR_clear_error();
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Make(
    const TlsContext& context, UniqueFd fd, net::TlsLayer::Side side,
    const net::WaitLimits& limits) {
  auto made = std::unique_ptr<TlsStream>(new TlsStream(std::move(fd), limits));
  made->tls_ = net::TlsLayer::Make(*context.settings_, made->fd_.get(), side);
  if (made->tls_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for a connection");
  }
  SSL_set_app_data(made->tls_->ssl(), made.get());
  return made;
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Accept(
    const TlsContext& context, UniqueFd fd, const net::WaitLimits& limits) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<TlsStream> made,
      Make(context, std::move(fd), net::TlsLayer::Side::kAccepts, limits));
  RETURN_IF_ERROR(made->Handshake());
  return made;
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Connect(
    const TlsContext& context, UniqueFd fd, const std::string& host,
    PeerCheck check, const net::WaitLimits& limits) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<TlsStream> made,
      Make(context, std::move(fd), net::TlsLayer::Side::kConnects, limits));
  made->check_ = std::move(check);
  // RFC 6066, section 3: without the dot that may end a name.
  const std::string name = ToComparedHost(host);
  if (!IsIpAddress(name)) {
    SSL_set_tlsext_host_name(made->tls_->ssl(), name.c_str());
  }
  RETURN_IF_ERROR(made->Handshake());
  return made;
}

int TlsStream::OnCertificates(X509_STORE_CTX* store, void*) {
  const auto* const ssl = static_cast<SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  TlsStream& stream = *static_cast<TlsStream*>(SSL_get_app_data(ssl));
  STACK_OF(X509)* const chain = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    stream.peer_chain_pem_ += ToPem(*sk_X509_value(chain, i));
  }
  if (stream.check_ != nullptr) {
    stream.checked_ = stream.check_(stream.peer_chain_pem_);
  }
  // OpenSSL checks that no error is left.
  X509_STORE_CTX_set_error(
      store, stream.checked_.ok() ? X509_V_OK : X509_V_ERR_CERT_REJECTED);
  return stream.checked_.ok() ? 1 : 0;
}

absl::Status TlsStream::Handshake() {
  const absl::Status status = Run([this] { return tls_->Handshake(); });
  RETURN_IF_ERROR(checked_);
  RETURN_IF_ERROR(status);
  is_open_ = true;
  return absl::OkStatus();
}

std::optional<bool> TlsStream::AcceptsAnotherCa() const {
  const STACK_OF(X509_NAME)* const names =
      SSL_get0_peer_CA_list(tls_->ssl());
  if (sk_X509_NAME_num(names) <= 0) return std::nullopt;
  const std::vector<Certificate> chain = ReadCertificates(peer_chain_pem_);
  for (int i = 0; i < sk_X509_NAME_num(names); ++i) {
    const X509_NAME* const name = sk_X509_NAME_value(names, i);
    const bool is_above = std::any_of(
        chain.begin(), chain.end(), [&](const Certificate& certificate) {
          return X509_NAME_cmp(name, X509_get_issuer_name(certificate.get())) ==
                 0;
        });
    if (!is_above) return true;
  }
  return false;
}

absl::Status TlsStream::Send(absl::string_view message) {
  if (message.size() > kTlsMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", message.size(), " bytes is longer than ",
                     kTlsMessageBytesMax));
  }
  const auto size = static_cast<uint32_t>(message.size());
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(size >> shift & 0xff));
  }
  absl::StrAppend(&bytes, message);
  size_t written = 0;
  // It is written whole: OpenSSL's mode for partial writes is off.
  return Run([&] { return tls_->Write(bytes, written); });
}

absl::StatusOr<std::string> TlsStream::Receive() {
  unsigned char prefix[kLengthBytes];
  RETURN_IF_ERROR(ReadAll(reinterpret_cast<char*>(prefix), sizeof(prefix)));
  size_t size = 0;
  for (const unsigned char byte : prefix) size = size << 8 | byte;
  if (size > kTlsMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer announces a message of ", size,
                     " bytes; at most ", kTlsMessageBytesMax, " are allowed"));
  }
  std::string message(size, '\0');
  RETURN_IF_ERROR(ReadAll(message.data(), message.size()));
  return message;
}

absl::Status TlsStream::ReadAll(char* bytes, size_t size) {
  while (size > 0) {
    size_t count = 0;
    RETURN_IF_ERROR(Run([&] { return tls_->Read(bytes, size, count); }));
    bytes += count;
    size -= count;
  }
  return absl::OkStatus();
}

absl::Status TlsStream::Run(absl::FunctionRef<net::TlsLayer::Step()> step) {
  using Step = net::TlsLayer::Step;
  absl::Status status;
  while (status.ok()) {
    switch (step()) {
      case Step::kDone:
        return absl::OkStatus();
      case Step::kWaitsToRead:
        status = net::WaitForSocket(fd_.get(), POLLIN, limits_);
        break;
      case Step::kWaitsToWrite:
        status = net::WaitForSocket(fd_.get(), POLLOUT, limits_);
        break;
      case Step::kEnded:
        status = ReadError();
    }
  }
  is_open_ = false;
  return status;
}

absl::Status TlsStream::ReadError() const {
  const int error = errno;
  if (const std::string reason = OpensslReason(); !reason.empty()) {
    return absl::UnavailableError(absl::StrCat("TLS: ", reason));
  }
  if (error != 0) {
    return absl::UnavailableError(
        ErrnoToStatus(error, "the connection ended").message());
  }
  return absl::UnavailableError("the peer closed the connection");
}

}  // namespace atl::rpc
