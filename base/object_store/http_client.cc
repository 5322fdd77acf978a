#include "base/object_store/http_client.h"

#include <curl/curl.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr long kReceiveBufferBytes = 512 << 10;
constexpr int64_t kCaBytesMax = 8 << 20;
constexpr int64_t kStallBytesPerSecond = 1 << 10;
constexpr int kRedirectCountMax = 5;
constexpr absl::Duration kCleanupTimeout = absl::Seconds(10);

struct CurlFree {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct CurlShareFree {  // CURL and CURLSH are one type.
  void operator()(CURLSH* share) const { curl_share_cleanup(share); }
};
using CurlPtr = std::unique_ptr<CURL, CurlFree>;
using CurlShare = std::unique_ptr<CURLSH, CurlShareFree>;
using CurlList = std::unique_ptr<curl_slist, CurlFree>;

// Finds transfers that are too slow. Pure.
class StallWatch {
 public:
  StallWatch(absl::Time now, int64_t window_bytes_min)
      : window_bytes_min_(window_bytes_min), begin_(now) {}

  // True if the last window moved too little. `moved` grows.
  bool IsStalled(absl::Time now, int64_t moved) {
    if (now - begin_ < HttpClient::kStallTimeout) return false;
    if (moved - begin_moved_ < window_bytes_min_) return true;
    begin_ = now;
    begin_moved_ = moved;
    return false;
  }

  // Does not count a time that the receiver took.
  void Exclude(absl::Duration time) { begin_ += time; }

 private:
  const int64_t window_bytes_min_;
  absl::Time begin_;
  int64_t begin_moved_ = 0;
};

// One request on its way.
constexpr int64_t kDroppedBytesMax = 1 << 20;

struct Transfer {
  Transfer(CURL* curl, const HttpClientOptions& options,
           absl::string_view context, const HttpRequest& request,
           HttpSink* sink)
      : curl(curl),
        context(context),
        is_cleanup(request.is_cleanup),
        follows_redirects(request.follows_redirects),
        options(options),
        sink(sink),
        watch(options.clock->Now(),
              sink == nullptr
                  ? 1
                  : kStallBytesPerSecond *
                        absl::ToInt64Seconds(HttpClient::kStallTimeout)) {}

  // Ends the transfer. Returns what makes libcurl stop.
  size_t Stop(const absl::Status& reason) {
    stopped = Annotate(reason, context);
    return 0;
  }

  CURL* const curl;
  const absl::string_view context;  // For messages.
  const bool is_cleanup;
  const bool follows_redirects;
  const HttpClientOptions& options;
  HttpSink* const sink;  // May be null.
  StallWatch watch;
  int64_t body_bytes = 0;  // Handed to us.
  HttpAnswer answer;
  int64_t header_bytes = 0;
  bool is_cut = false;   // The rest of an error's body is not read.
  absl::Status stopped;  // Why we ended it.
  const HttpUrl* url = nullptr;
  absl::Status refused;  // By the policy: one of the host's addresses.
  char error[CURL_ERROR_SIZE] = {};
};

size_t ReceiveHeader(char* bytes, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const absl::string_view line(bytes, size * count);
  transfer.header_bytes += static_cast<int64_t>(line.size());
  if (transfer.header_bytes > HttpClient::kHeaderBytesMax) {
    return transfer.Stop(absl::ResourceExhaustedError(
        absl::StrCat("the answer has more than ", HttpClient::kHeaderBytesMax,
                     " bytes of headers")));
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(':', 1));
  if (absl::StartsWith(line, "HTTP/")) {
    transfer.answer.headers.clear();  // A redirect's or a 100's.
  } else if (absl::StrContains(line, ":")) {
    transfer.answer.headers[absl::AsciiStrToLower(parts.first)] =
        std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return line.size();
}

size_t ReceiveBody(char* bytes, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const absl::string_view piece(bytes, size * count);
  HttpAnswer& answer = transfer.answer;
  long code = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &code);
  answer.code = static_cast<int>(code);
  if (transfer.follows_redirects && answer.code / 100 == 3 &&
      !answer.header("location").empty()) {
    return piece.size();  // Watch bounds it.
  }
  transfer.body_bytes += static_cast<int64_t>(piece.size());
  if (answer.ok() && transfer.sink != nullptr) {
    const absl::Time begin = transfer.options.clock->Now();
    transfer.stopped = (*transfer.sink)(answer, piece);
    transfer.watch.Exclude(transfer.options.clock->Now() - begin);
    return transfer.stopped.ok() ? piece.size() : 0;
  }
  const size_t bytes_max =
      answer.ok() ? HttpClient::kBodyBytesMax : HttpClient::kErrorBytesMax;
  if (answer.body.size() + piece.size() <= bytes_max) {
    answer.body.append(piece.data(), piece.size());
    return piece.size();
  }
  if (answer.ok()) {
    return transfer.Stop(absl::ResourceExhaustedError(
        absl::StrCat("the answer has more than ", bytes_max, " bytes")));
  }
  transfer.is_cut = true;
  return 0;
}

int Watch(void* self, curl_off_t, curl_off_t received, curl_off_t,
          curl_off_t sent) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const HttpClientOptions& options = transfer.options;
  if (!transfer.is_cleanup && options.cancelled && options.cancelled()) {
    transfer.Stop(absl::CancelledError("cancelled"));
    return 1;
  }
  // ReceiveBody drops the body of a redirect.
  if (received > transfer.body_bytes + kDroppedBytesMax) {
    transfer.Stop(absl::UnavailableError("a redirect's body does not end"));
    return 1;
  }
  if (transfer.watch.IsStalled(options.clock->Now(), received + sent)) {
    transfer.Stop(absl::UnavailableError(
        absl::StrCat("the transfer stalled for ",
                     absl::FormatDuration(HttpClient::kStallTimeout))));
    return 1;
  }
  return 0;
}

// Opens a socket to the address that libcurl found, if the policy allows it.
// There may be several addresses: a refusal ends the transfer only if none of
// the others answers.
curl_socket_t OpenSocket(void* self, curlsocktype, curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const absl::Status allowed =
      transfer.options.dial_policy->Check(*transfer.url, address->addr);
  if (!allowed.ok()) {
    transfer.refused = Annotate(allowed, transfer.context);
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC,
                  address->protocol);
}

// The error for libcurl's result, if we did not end the transfer.
absl::Status ToStatus(CURLcode code, absl::string_view text) {
  switch (code) {
    case CURLE_OK:
      return absl::OkStatus();
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(absl::StrCat(
          "the server's certificate is not trusted: ", text,
          "; if its authority is your own, add it to the CA file, or to this "
          "machine's CA certificates (update-ca-certificates)"));
    case CURLE_URL_MALFORMAT:
      return absl::InvalidArgumentError("the URL is malformed");
    case CURLE_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError("out of memory");
    default:
      return absl::UnavailableError(text);
  }
}

// Turns `request` into the one that an answer's redirect to `url` asks for.
absl::Status Redirect(absl::string_view url, HttpRequest& request) {
  const absl::string_view target = url.substr(0, url.find('#'));
  const absl::StatusOr<HttpUrl> to = ParseHttpUrl(target);
  if (!to.ok() || !to->is_https) {
    return absl::FailedPreconditionError(
        "the server redirects to a URL that is not https://");
  }
  ASSIGN_OR_RETURN(const HttpUrl from,
                   ParseHttpUrl(request.url, PlaintextHosts::kAny));
  if (to->origin() != from.origin()) request.bearer_token.clear();
  request.url = std::string(target);
  return absl::OkStatus();
}

absl::Status CheckNoControls(absl::string_view text) {
  if (std::none_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "a header or a token has a line end or another control character");
}

absl::StatusOr<CurlList> MakeHeaders(const HttpRequest& request) {
  CurlList list;
  const auto append = [&list](const std::string& line) {
    curl_slist* const longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) return absl::ResourceExhaustedError("out of memory");
    (void)list.release();
    list.reset(longer);
    return absl::OkStatus();
  };
  // libcurl's own default for a body is a form.
  RETURN_IF_ERROR(append("Content-Type:"));
  for (const auto& [name, value] : request.headers) {
    RETURN_IF_ERROR(CheckNoControls(name));
    RETURN_IF_ERROR(CheckNoControls(value));
    // ";" makes a header without a value.
    RETURN_IF_ERROR(append(value.empty() ? absl::StrCat(name, ";")
                                         : absl::StrCat(name, ": ", value)));
  }
  RETURN_IF_ERROR(CheckNoControls(request.bearer_token));
  return list;
}

// The certificates that are trusted: the options' own, after those that `curl`
// trusts by default.
absl::StatusOr<std::string> ReadAuthorities(CURL* curl,
                                            const HttpClientOptions& options) {
  const std::string& own = options.ca_pem;
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(
      BIO_new_mem_buf(own.data(), static_cast<int>(own.size())), &BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> first(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
  if (first == nullptr) {
    return absl::InvalidArgumentError(
        "the CA file that is given has no PEM certificate");
  }
  if (options.trusts_only_ca_pem) return own;
  const char* bundle = nullptr;
  curl_easy_getinfo(curl, CURLINFO_CAINFO, &bundle);
  if (bundle == nullptr || !PosixFileSystem().Exists(bundle)) return own;
  ASSIGN_OR_RETURN(const std::string system,
                   ReadFile(PosixFileSystem(), bundle, kCaBytesMax));
  return absl::StrCat(system, "\n", own);
}

absl::Status CheckOptions(const HttpClientOptions& options) {
  for (const int64_t rate :
       {options.receive_bytes_per_second, options.send_bytes_per_second}) {
    if (rate != 0 && rate < HttpClient::kRateMin) {
      return absl::InvalidArgumentError(absl::StrCat("a bandwidth of ", rate,
                                                     " bytes/s is less than ",
                                                     HttpClient::kRateMin));
    }
  }
  return absl::OkStatus();
}

class CurlClient : public HttpClient {
 public:
  CurlClient(const HttpClientOptions& options, CurlShare share,
             std::string authorities)
      : options_(options),
        share_(std::move(share)),
        authorities_(std::move(authorities)) {}

  absl::StatusOr<HttpAnswer> Send(const HttpRequest& request) override {
    return SendTo(request, nullptr);
  }

  absl::StatusOr<HttpAnswer> Send(const HttpRequest& request,
                                  HttpSink sink) override {
    return SendTo(request, &sink);
  }

 private:
  template <typename T>
  void Set(CURLoption option, T value) {
    curl_easy_setopt(curl_.get(), option, value);
  }

  absl::StatusOr<HttpUrl> Parse(const HttpRequest& request) const {
    return ParseHttpUrl(
        request.url, options_.dial_policy.has_value() ? PlaintextHosts::kAny
                     : request.is_local ? PlaintextHosts::kContainers
                                        : PlaintextHosts::kLoopback);
  }

  // Follows redirects by itself: each host may or may not need the proxy.
  absl::StatusOr<HttpAnswer> SendTo(const HttpRequest& request,
                                    HttpSink* sink) {
    const std::string context =
        absl::StrCat(request.method, " ", RedactUrl(request.url));
    if (is_busy_) {
      return absl::FailedPreconditionError(
          absl::StrCat(context, ": a sink called the store that calls it"));
    }
    is_busy_ = true;
    const absl::Cleanup done = [this] { is_busy_ = false; };
    const absl::Time deadline =
        options_.clock->Now() +
        (request.is_cleanup ? kCleanupTimeout : options_.request_timeout);
    HttpRequest hop = request;
    for (int count = 0; count <= kRedirectCountMax; ++count) {
      ASSIGN_OR_RETURN(HttpAnswer answer,
                       SendOnce(hop, context, deadline, sink));
      answer.redirect_count = count;
      const char* next = nullptr;
      curl_easy_getinfo(curl_.get(), CURLINFO_REDIRECT_URL, &next);
      if (!request.follows_redirects || next == nullptr) return answer;
      RETURN_IF_ERROR(Annotate(Redirect(next, hop), context));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(context, ": the server redirects more than ",
                     kRedirectCountMax, " times"));
  }

  // `context` is for messages. Only a request without a sink has the deadline.
  absl::StatusOr<HttpAnswer> SendOnce(const HttpRequest& request,
                                      absl::string_view context,
                                      absl::Time deadline, HttpSink* sink) {
    ASSIGN_OR_RETURN(const HttpUrl url, Parse(request));
    const bool is_proxied =
        !request.is_local && options_.proxy.Serves(url.host);
    if (is_proxied) {
      RETURN_IF_ERROR(Annotate(options_.proxy.CheckUsable(), context));
      if (options_.dial_policy.has_value()) {
        RETURN_IF_ERROR(
            Annotate(options_.dial_policy->CheckProxied(url), context));
      }
    }
    absl::StatusOr<CurlList> headers = MakeHeaders(request);
    if (!headers.ok()) return Annotate(headers.status(), context);
    // A new handle for each request: after the first one, Debian's libcurl
    // (7.88) reads freed memory if an answer's first header begins with a space.
    curl_.reset(curl_easy_init());
    if (curl_ == nullptr) return absl::ResourceExhaustedError("out of memory");
    Set(CURLOPT_SHARE, share_.get());
    Transfer transfer(curl_.get(), options_, context, request, sink);
    SetConnection(is_proxied);
    SetRequest(request, headers->get());
    SetTransfer(transfer, deadline);
    if (options_.dial_policy.has_value() && !is_proxied) {
      transfer.url = &url;
      Set(CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
      Set(CURLOPT_OPENSOCKETDATA, &transfer);
    }
    const CURLcode code = curl_easy_perform(curl_.get());
    Set(CURLOPT_ERRORBUFFER, nullptr);  // The handle outlives the transfer.
    RETURN_IF_ERROR(transfer.stopped);
    if (code == CURLE_COULDNT_CONNECT) RETURN_IF_ERROR(transfer.refused);
    RETURN_IF_ERROR(Annotate(CheckTunnel(code, url), context));
    if (!transfer.is_cut) {
      const absl::Status status =
          ToStatus(code, transfer.error[0] != '\0' ? transfer.error
                                                   : curl_easy_strerror(code));
      RETURN_IF_ERROR(Annotate(status, context));
    }
    long answer_code = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &answer_code);
    transfer.answer.code = static_cast<int>(answer_code);
    return std::move(transfer.answer);
  }

  void SetConnection(bool is_proxied) {
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    Set(CURLOPT_CONNECTTIMEOUT_MS,
        static_cast<long>(absl::ToInt64Milliseconds(kConnectTimeout)));
    SetProxy(is_proxied);
    if (!authorities_.empty()) {
      curl_blob blob = {const_cast<char*>(authorities_.data()),
                        authorities_.size(), CURL_BLOB_NOCOPY};
      Set(CURLOPT_CAINFO_BLOB, &blob);
      if (options_.trusts_only_ca_pem) Set(CURLOPT_CAPATH, nullptr);
    }
    Set(CURLOPT_MAX_RECV_SPEED_LARGE,
        static_cast<curl_off_t>(options_.receive_bytes_per_second));
    Set(CURLOPT_MAX_SEND_SPEED_LARGE,
        static_cast<curl_off_t>(options_.send_bytes_per_second));
    Set(CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
    Set(CURLOPT_UPLOAD_BUFFERSIZE, kReceiveBufferBytes);
  }

  void SetProxy(bool is_proxied) {
    const Proxy& proxy = options_.proxy;
    Set(CURLOPT_NOPROXY, "");
    Set(CURLOPT_PROXY, "");  // Not the environment's.
    if (!is_proxied) return;
    Set(CURLOPT_PROXY, absl::StrCat("http://", proxy.name()).c_str());
    const auto& [user, password] = std::pair<std::string, std::string>(
        absl::StrSplit(proxy.credentials, absl::MaxSplits(':', 1)));
    if (!proxy.credentials.empty()) {
      Set(CURLOPT_PROXYUSERNAME, user.c_str());
      Set(CURLOPT_PROXYPASSWORD, password.c_str());
    }
    Set(CURLOPT_HTTPPROXYTUNNEL, 1L);
    Set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  }

  // Not OK: the proxy refused to connect us.
  absl::Status CheckTunnel(CURLcode code, const HttpUrl& target) {
    long answer = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_HTTP_CONNECTCODE, &answer);
    if (code == CURLE_OK || answer == 0 || answer / 100 == 2) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(DescribeRefusal(
        options_.proxy.name(), static_cast<int>(answer),
        JoinHostPort(target.host, target.port == 0 ? 443 : target.port)));
  }

  void SetRequest(const HttpRequest& request, curl_slist* headers) {
    Set(CURLOPT_URL, request.url.c_str());
    Set(CURLOPT_PATH_AS_IS, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    if (request.method == "HEAD") {
      Set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      Set(CURLOPT_POST, 1L);
      Set(CURLOPT_POSTFIELDSIZE_LARGE,
          static_cast<curl_off_t>(request.body.size()));
      Set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
      Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    } else {
      Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    Set(CURLOPT_HTTPHEADER, headers);
    if (!request.bearer_token.empty()) {
      Set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
      Set(CURLOPT_XOAUTH2_BEARER, request.bearer_token.c_str());
    }
  }

  void SetTransfer(Transfer& transfer, absl::Time deadline) {
    if (transfer.sink == nullptr) {
      const absl::Duration left =
          std::max(deadline - options_.clock->Now(), absl::Milliseconds(1));
      Set(CURLOPT_TIMEOUT_MS,
          static_cast<long>(absl::ToInt64Milliseconds(left)));
    }
    Set(CURLOPT_HEADERFUNCTION, &ReceiveHeader);
    Set(CURLOPT_HEADERDATA, &transfer);
    Set(CURLOPT_WRITEFUNCTION, &ReceiveBody);
    Set(CURLOPT_WRITEDATA, &transfer);
    Set(CURLOPT_NOPROGRESS, 0L);
    Set(CURLOPT_XFERINFOFUNCTION, &Watch);
    Set(CURLOPT_XFERINFODATA, &transfer);
    Set(CURLOPT_ERRORBUFFER, transfer.error);
  }

  const HttpClientOptions options_;
  const CurlShare share_;  // Connections and sessions.
  CurlPtr curl_;           // The last request's; null before.
  const std::string authorities_;  // PEM; empty: the system's.
  bool is_busy_ = false;
};

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Create(
    const HttpClientOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  // Thread-safe in this version of libcurl.
  const CurlPtr curl(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
                         ? curl_easy_init()
                         : nullptr);
  if (curl == nullptr) return absl::InternalError("libcurl does not start");
  CurlShare share(curl_share_init());
  if (share == nullptr) return absl::ResourceExhaustedError("out of memory");
  for (const curl_lock_data data :
       {CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_SSL_SESSION,
        CURL_LOCK_DATA_DNS}) {
    curl_share_setopt(share.get(), CURLSHOPT_SHARE, data);
  }
  std::string authorities;
  if (!options.ca_pem.empty() || options.trusts_only_ca_pem) {
    ASSIGN_OR_RETURN(authorities, ReadAuthorities(curl.get(), options));
  }
  return std::make_unique<CurlClient>(options, std::move(share),
                                      std::move(authorities));
}

}  // namespace atl
