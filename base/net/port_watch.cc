#include "base/net/port_watch.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::net {
namespace {

// RFC 9113, 3.4: the preface, and an empty SETTINGS frame.
constexpr absl::string_view kHttp2Hello(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);

// The first message of a TLS client.
std::string MakeTlsHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
      SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(
      context == nullptr ? nullptr : SSL_new(context.get()), &SSL_free);
  if (ssl == nullptr) return "";
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);
  (void)SSL_connect(ssl.get());  // Waits for an answer.
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(sent, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

}  // namespace

absl::Status CheckPort(const HostPort& address, bool has_tls,
                       const WaitLimits& limits) {
  ASSIGN_OR_RETURN(const UniqueFd fd, Dial(address, limits));
  const std::string hello =
      has_tls ? MakeTlsHello() : std::string(kHttp2Hello);
  // It fits the kernel's buffer.
  if (send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size())) {
    return ErrnoToStatus(errno, "send");
  }
  RETURN_IF_ERROR(WaitForSocket(fd.get(), POLLIN, limits));
  char byte;
  const ssize_t size = recv(fd.get(), &byte, 1, 0);
  if (size < 0) return ErrnoToStatus(errno, "recv");
  if (size == 0) return absl::UnavailableError("it closes the connection");
  return absl::OkStatus();
}

PortWatch::PortWatch(Spec spec) : spec_(std::move(spec)) {
  absl::StatusOr<UniqueFd> stop = MakeWaker();
  if (!stop.ok()) {
    LOG(WARNING) << "no watch of the ports: " << stop.status();
    return;
  }
  stop_ = *std::move(stop);
  thread_ = std::thread([this] { Run(); });
}

PortWatch::~PortWatch() {
  if (!thread_.joinable()) return;
  SetWaker(stop_.get());
  thread_.join();
}

absl::Status PortWatch::CheckAll() const {
  for (const HostPort& address : spec_.addresses) {
    const absl::Status status =
        CheckPort(address, spec_.has_tls,
                  {SystemClock().Now() + spec_.answer_max, stop_.get()});
    if (absl::IsCancelled(status)) return status;
    RETURN_IF_ERROR(Annotate(
        status, absl::StrCat("our port ", address.port, " does not answer")));
  }
  return absl::OkStatus();
}

void PortWatch::Run() {
  absl::Status shown;
  for (;;) {
    const absl::Status status = CheckAll();
    if (absl::IsCancelled(status)) return;
    if (status != shown) {
      shown = status;
      LOG(WARNING) << (shown.ok() ? "our ports answer again"
                                  : std::string(shown.message()));
      spec_.on_change(shown);
    }
    if (absl::IsCancelled(WaitForSocket(
            -1, 0, {SystemClock().Now() + spec_.period, stop_.get()}))) {
      return;
    }
  }
}

}  // namespace atl::net
