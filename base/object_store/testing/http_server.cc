#include "base/object_store/testing/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/check.h"
#include "base/sync/mutex.h"

namespace atl {

struct HttpServer::State {
  // A request while it is received.
  struct Receiving {
    ServerRequest request;
    bool has_headers = false;
  };

  // An answer while it is sent.
  struct Sending {
    State& state;
    ServerAnswer answer;
  };

  static void* Begin(void*, const char* uri, MHD_Connection*) {
    auto* const receiving = new Receiving;
    receiving->request.target = uri;
    return receiving;
  }

  static void End(void*, MHD_Connection*, void** context,
                  MHD_RequestTerminationCode) {
    const std::unique_ptr<Receiving> done(static_cast<Receiving*>(*context));
    *context = nullptr;
  }

  static void CountConnection(void* self, MHD_Connection*, void**,
                              MHD_ConnectionNotificationCode code) {
    State& state = *static_cast<State*>(self);
    MutexLock lock(&state.mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) ++state.connection_count;
  }

  static MHD_Result AddHeader(void* headers, MHD_ValueKind, const char* name,
                              const char* value) {
    auto& map = *static_cast<std::map<std::string, std::string>*>(headers);
    map[absl::AsciiStrToLower(name)] = value == nullptr ? "" : value;
    return MHD_YES;
  }

  static MHD_Result Answer(void* self, MHD_Connection* connection, const char*,
                           const char* method, const char*, const char* bytes,
                           size_t* byte_count, void** context) {
    State& state = *static_cast<State*>(self);
    Receiving& receiving = *static_cast<Receiving*>(*context);
    if (!receiving.has_headers) {
      receiving.has_headers = true;
      receiving.request.method = method;
      MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHeader,
                                &receiving.request.headers);
      return MHD_YES;
    }
    if (*byte_count > 0) {
      receiving.request.body.append(bytes, *byte_count);
      *byte_count = 0;
      return MHD_YES;
    }
    {
      MutexLock lock(&state.mutex);
      state.requests.push_back(receiving.request);
    }
    return state.Send(connection, state.handler(receiving.request));
  }

  static ssize_t Read(void* self, uint64_t position, char* out, size_t room) {
    Sending& sending = *static_cast<Sending*>(self);
    const ServerAnswer& answer = sending.answer;
    const auto at = static_cast<int64_t>(position);
    if (at == answer.cut_after) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (at == answer.stall_after) {
      sending.state.AwaitStop();
      return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    int64_t end = static_cast<int64_t>(answer.body.size());
    for (const int64_t fault : {answer.cut_after, answer.stall_after}) {
      if (fault > at) end = std::min(end, fault);
    }
    const size_t count = std::min<size_t>(room, end - at);
    std::memcpy(out, answer.body.data() + at, count);
    return static_cast<ssize_t>(count);
  }

  MHD_Result Send(MHD_Connection* connection, ServerAnswer answer) {
    auto* const sending = new Sending{*this, std::move(answer)};
    MHD_Response* const response = MHD_create_response_from_callback(
        sending->answer.body.size(), 64 << 10, &Read, sending, [](void* held) {
          const std::unique_ptr<Sending> sent(static_cast<Sending*>(held));
        });
    for (const auto& [name, value] : sending->answer.headers) {
      MHD_add_response_header(response, name.c_str(), value.c_str());
    }
    const MHD_Result result =
        MHD_queue_response(connection, sending->answer.code, response);
    MHD_destroy_response(response);
    return result;
  }

  void AwaitStop() {
    MutexLock lock(&mutex);
    while (!stops) wake.Wait(&mutex);
  }

  Handler handler;
  std::string key;
  std::string certificate;
  mutable Mutex mutex;
  CondVar wake;
  int connection_count ABSL_GUARDED_BY(mutex) = 0;
  bool stops ABSL_GUARDED_BY(mutex) = false;
  std::vector<ServerRequest> requests ABSL_GUARDED_BY(mutex);
};

HttpServer::HttpServer(Handler handler, const rpc::TlsFiles* tls)
    : state_(std::make_unique<State>()), is_tls_(tls != nullptr) {
  state_->handler = std::move(handler);
  unsigned flags =
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION;
  std::vector<MHD_OptionItem> options;
  if (is_tls_) {
    flags |= MHD_USE_TLS;
    state_->key = ReadFile(PosixFileSystem(), tls->key).value();
    state_->certificate = ReadFile(PosixFileSystem(), tls->cert).value();
    options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, state_->key.data()});
    options.push_back(
        {MHD_OPTION_HTTPS_MEM_CERT, 0, state_->certificate.data()});
  }
  options.push_back({MHD_OPTION_END, 0, nullptr});
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  daemon_ = MHD_start_daemon(
      flags, 0, nullptr, nullptr, &State::Answer, state_.get(),
      MHD_OPTION_SOCK_ADDR, reinterpret_cast<sockaddr*>(&address),
      MHD_OPTION_URI_LOG_CALLBACK, &State::Begin, nullptr,
      MHD_OPTION_NOTIFY_COMPLETED, &State::End, nullptr,
      MHD_OPTION_NOTIFY_CONNECTION, &State::CountConnection, state_.get(),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t{256} << 10, MHD_OPTION_ARRAY,
      options.data(), MHD_OPTION_END);
  CHECK(daemon_ != nullptr);
  port_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
}

HttpServer::~HttpServer() {
  {
    MutexLock lock(&state_->mutex);
    state_->stops = true;
    state_->wake.SignalAll();
  }
  MHD_stop_daemon(daemon_);
}

std::string HttpServer::origin() const {
  return absl::StrCat(is_tls_ ? "https" : "http", "://127.0.0.1:", port_);
}

std::vector<ServerRequest> HttpServer::requests() const {
  MutexLock lock(&state_->mutex);
  return state_->requests;
}

int HttpServer::connection_count() const {
  MutexLock lock(&state_->mutex);
  return state_->connection_count;
}

}  // namespace atl
