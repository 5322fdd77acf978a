#include "base/net/http_daemon.h"

#include <sys/socket.h>

#include <limits>

#include "absl/status/status.h"

namespace atl::net {

absl::StatusOr<std::unique_ptr<HttpDaemon>> HttpDaemon::Start(
    const Spec& spec) {
  auto made = std::unique_ptr<HttpDaemon>(new HttpDaemon(spec));
  std::vector<MHD_OptionItem> options = spec.options;
  options.push_back({MHD_OPTION_NOTIFY_CONNECTION,
                     reinterpret_cast<intptr_t>(&HttpDaemon::Notify),
                     made.get()});
  options.push_back({MHD_OPTION_CONNECTION_LIMIT,
                     std::numeric_limits<int>::max(), nullptr});
  options.push_back({MHD_OPTION_END, 0, nullptr});
  made->daemon_ = MHD_start_daemon(
      spec.flags | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC, 0, nullptr, nullptr,
      spec.answer, spec.answerer, MHD_OPTION_ARRAY, options.data(),
      MHD_OPTION_END);
  if (made->daemon_ == nullptr) {
    return absl::ResourceExhaustedError(
        "the HTTP server does not start: too few threads, files or too little "
        "memory, or GnuTLS does not take the certificate");
  }
  return made;
}

HttpDaemon::~HttpDaemon() {
  if (daemon_ == nullptr) return;
  MHD_stop_daemon(daemon_);
  // Those that it never began with.
  while (!ids_.empty()) End(ids_.begin()->first);
}

void HttpDaemon::Serve(UniqueFd fd,
                       const BoundedListener::Connection& connection) {
  // The descriptor's last connection: the daemon reports no end of one that it
  // had too little memory for.
  End(fd.get());
  bool has_room = false;
  {
    MutexLock lock(&mutex_);
    ids_[fd.get()] = connection.id;
    has_room = static_cast<int>(ids_.size()) <= spec_.connection_count_max;
  }
  if (!has_room) return End(fd.get());
  const int number = fd.Release();  // The daemon closes it in any case.
  if (MHD_add_connection(
          daemon_, number,
          reinterpret_cast<const sockaddr*>(&connection.address),
          sizeof(connection.address)) != MHD_YES) {
    End(number);
  }
}

HttpDaemon::Id HttpDaemon::IdOf(MHD_Connection* connection) const {
  MutexLock lock(&mutex_);
  return ids_.at(DescriptorOf(connection));
}

int HttpDaemon::count() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(ids_.size());
}

int HttpDaemon::DescriptorOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
      ->connect_fd;
}

void HttpDaemon::Notify(void* self, MHD_Connection* connection, void**,
                        MHD_ConnectionNotificationCode code) {
  if (code != MHD_CONNECTION_NOTIFY_CLOSED) return;
  static_cast<HttpDaemon*>(self)->End(DescriptorOf(connection));
}

void HttpDaemon::End(int fd) {
  Id id = 0;
  {
    MutexLock lock(&mutex_);
    const auto found = ids_.find(fd);
    if (found == ids_.end()) return;
    id = found->second;
    ids_.erase(found);
  }
  if (spec_.on_end) spec_.on_end(id);
  spec_.listener->End(id);
}

}  // namespace atl::net
