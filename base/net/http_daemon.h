// libmicrohttpd behind a BoundedListener: the listener accepts and bounds
// connections, the daemon speaks HTTP with those that have sent something.
//
// The daemon has no port, and tells the listener of each connection that it
// closes.
//
// Thread-safe.

#pragma once

#include <microhttpd.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/io/unique_fd.h"
#include "base/net/bounded_listener.h"
#include "base/sync/mutex.h"

namespace atl::net {

class HttpDaemon {
 public:
  using Id = BoundedListener::Id;

  struct Spec {
    BoundedListener* listener = nullptr;  // Must outlive the daemon.
    unsigned flags = 0;                   // MHD_FLAG: how it waits, TLS.
    MHD_AccessHandlerCallback answer = nullptr;
    void* answerer = nullptr;             // Its first argument.
    std::vector<MHD_OptionItem> options;  // Without MHD_OPTION_END.
    // Connections at a time, more than the listener has places: one that loses
    // its place takes a moment to end. Further ones are closed.
    int connection_count_max = 2048;
    // The connection ends. Its descriptor is still open. May be empty.
    std::function<void(Id)> on_end;
  };

  // RESOURCE_EXHAUSTED: too few threads, files or too little memory; or GnuTLS
  // does not take what `options` have for it.
  static absl::StatusOr<std::unique_ptr<HttpDaemon>> Start(const Spec& spec);
  // Cuts every connection. No Serve may be in progress.
  ~HttpDaemon();
  HttpDaemon(const HttpDaemon&) = delete;
  HttpDaemon& operator=(const HttpDaemon&) = delete;

  // Takes over a connection of the listener. on_end may be called before it
  // returns.
  void Serve(UniqueFd fd, const BoundedListener::Connection& connection);

  // The listener's number of a connection that is being answered.
  Id IdOf(MHD_Connection* connection) const;

  // Connections that were taken over and have not ended.
  int count() const;

 private:
  explicit HttpDaemon(const Spec& spec) : spec_(spec) {}

  static int DescriptorOf(MHD_Connection* connection);
  static void Notify(void* self, MHD_Connection* connection, void** context,
                     MHD_ConnectionNotificationCode code);
  // The connection with this descriptor has ended, if there is one.
  void End(int fd);

  const Spec spec_;
  mutable Mutex mutex_;
  absl::flat_hash_map<int, Id> ids_ ABSL_GUARDED_BY(mutex_);  // By descriptor.
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace atl::net
