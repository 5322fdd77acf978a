// Guards one port: nothing of a call runs before its caller was checked, and no
// caller has more calls open than its bound. Tells the port's listener whose a
// connection is.
//
//   a call of                 is checked by            and refused with
//   a guarded service         its handler              the check's status
//   a method of no service    the interceptor; any     CANCELLED; otherwise
//                             role                     UNIMPLEMENTED by gRPC
//
// In plaintext there is nothing to check: every caller is an operator.
//
// While many calls wait for a thread, the listener is paused: a peer that dials
// again for each connection that is shut would only add to them.
//
// A reader's connection whose calls come again before the RetryInfo of their
// refusals is over is not read for a time (refused_callers.h).
//
// Certificates that it has not seen are examined elsewhere (caller_examiner.h),
// so that calls of others do not wait for that.
//
// Looks once a second whether the TLS files have changed. Then connections with
// an open call of a certificate that no longer counts are shut.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/net/bounded_listener.h"
#include "base/obs/log_pace.h"
#include "base/rpc/call_quota.h"
#include "base/rpc/caller_check.h"
#include "base/rpc/caller_examiner.h"
#include "base/rpc/refused_callers.h"
#include "base/sync/mutex.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "grpcpp/support/status.h"

namespace atl::rpc {

class CallGuard {
 public:
  // `check`: null in plaintext. `holds_readers`: false if a connection has bulk
  // streams, which would wait too.
  CallGuard(std::shared_ptr<net::BoundedListener> listener,
            std::shared_ptr<CallerCheck> check, bool holds_readers);
  ~CallGuard();
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  // The service to register in the place of `service`, which must outlive it.
  // The guard must too. Before the server starts.
  // INTERNAL: as GuardedService::Make.
  absl::StatusOr<std::unique_ptr<grpc::Service>> Guard(grpc::Service& service);

  // Count the calls of a server; it needs both. The guard must outlive it.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  MakeInterceptors();
  std::unique_ptr<grpc::ContextAllocator> MakeContexts();

 private:
  class Call;
  class Contexts;
  class Factory;

  // A call that has a context of MakeContexts.
  struct State {
    bool waits = true;       // For a thread.
    bool is_excess = false;  // Beyond its caller's bound.
    bool reads = false;      // Its one request has not come yet.
    std::string key;         // CallerCheck's; empty: none, or it still waits.
    std::shared_ptr<const grpc::AuthContext> peer;  // Null if it still waits.
  };

  // Calls that gRPC has read and that wait for a thread. gRPC would read more
  // without a bound, and each takes memory.
  static constexpr int kWaitingMax = 256;
  static constexpr int kLookEvery = 64;
  // A connection that has proven nothing and sent fewer bytes has made few of
  // these calls: a handshake takes half of it. Beyond kWaitingMany it is shut,
  // too.
  static constexpr int kStrangerBytes = 8 << 10;
  static constexpr int kWaitingMany = 1024;
  // A pause ends when so few wait. No peer can make it last: it also ends after
  // kPauseMax, and the next one begins kPauseApart later at the earliest.
  static constexpr int kWaitingFew = 64;
  static constexpr absl::Duration kPauseMax = absl::Seconds(2);
  static constexpr absl::Duration kPauseApart = absl::Milliseconds(100);
  // A look takes time for each certificate and connection.
  static constexpr absl::Duration kLookApart = absl::Milliseconds(1);
  // Beyond so many an honest caller may be shut, too.
  static constexpr int kWaitingUrgent = 4096;
  // Calls of a port that wait for their one request, which comes with the call
  // as a rule. Beyond that a certificate has kReadingShare such calls.
  static constexpr int kReadingMax = 512;
  static constexpr int kReadingShare = 8;

  // A call waits. Called where gRPC reads.
  void Wait(const grpc::ServerContextBase& call);
  // Shuts connections of a certificate that floods, and those of strangers that
  // may. `waiting_count` calls wait.
  void ShutFlood(absl::Time now, int waiting_count);
  // One call fewer waits. Returns true if TellListener is due.
  bool NoteStarted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellListener();
  // It has a thread.
  void Start(const grpc::ServerContextBase& call, State state);
  // It begins or ends to wait for its request.
  void SetReads(const grpc::ServerContextBase& call, bool reads);
  // It has ended. False: it never waited.
  bool End(const grpc::ServerContextBase& call);
  // It is about to end with `status`. Holds the connection of a reader that
  // does not wait.
  void NoteStatus(const grpc::ServerContextBase& call, absl::string_view method,
                  const grpc::Status& status);
  // Shuts the connections of the certificate with this key.
  void Shut(const std::string& key, const std::string& name);

  // The thread that looks at the files, and at long pauses.
  void Look();
  void EndLongPause();
  void ShutThoseThatNoLongerCount();

  // As GuardedService::Check.
  std::optional<absl::Status> Check(
      const grpc::ServerContextBase& call, absl::string_view method,
      absl::FunctionRef<std::function<void()>()> make_later) const;

  const std::shared_ptr<net::BoundedListener> listener_;
  const std::shared_ptr<CallerCheck> check_;
  const bool holds_readers_;
  CallQuota quota_;
  RefusedCallers refused_{RandomSeed()};
  absl::flat_hash_set<std::string> guarded_;  // Methods; fixed before calls.

  mutable Mutex mutex_;
  absl::flat_hash_map<const grpc::ServerContextBase*, State> calls_
      ABSL_GUARDED_BY(mutex_);
  int waiting_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int reading_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // By key; of those that have some.
  absl::flat_hash_map<std::string, int> reading_ ABSL_GUARDED_BY(mutex_);
  absl::Time look_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool is_paused_ ABSL_GUARDED_BY(mutex_) = false;
  // When the pause began; without a pause, when one may begin.
  absl::Time pause_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  LogPace log_pace_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar ending_;
  Mutex tell_mutex_;  // Before mutex_. So the listener hears the newest last.
  std::thread looks_;

  std::unique_ptr<CallerExaminer> examiner_;  // Null in plaintext.
};

}  // namespace atl::rpc
