// How many calls the holder of one certificate may have open on a port.
//
// gRPC bounds the open streams of a connection. A peer that resets each stream
// at once stays below that bound, while its calls wait for threads and take
// memory ("rapid reset", CVE-2023-44487). So calls count from the
// authentication step, which sees each call first, to the end of their handler.
//
// A call that its peer resets early may never come to a handler, and gRPC does
// not report its end. Such calls are forgotten at a fixed rate, far above that
// of callers that give up on calls now and then.
//
// Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"

namespace atl::rpc {

class CallQuota {
 public:
  // Calls of a certificate that are open, or were lost within the last seconds.
  static constexpr int kOpenMax = 1024;
  static constexpr double kForgottenPerSecond = 100;
  // Calls refused in a row, after which the caller's connections are shut.
  static constexpr int kRefusedMax = 1024;

  enum class Answer {
    kAdmitted,
    kRefused,
    kAbusive,  // Refused; its connections should be shut.
  };

  // A call of `certificate` comes to the authentication step.
  Answer Start(absl::string_view certificate, absl::Time now);
  // An admitted call comes to its handler, and has ended there. Each call ends
  // once.
  void Begin(absl::string_view certificate, absl::Time now);
  void End(absl::string_view certificate, absl::Time now);

  // Certificates that are remembered.
  size_t count() const;

 private:
  struct Use {
    int in_handlers = 0;
    double before_handlers = 0;  // Or lost.
    absl::Time time;             // before_handlers is as of then.
    int refused_count = 0;       // Since the last that was admitted.
  };

  static void Forget(Use& use, absl::Time now);
  void RemoveIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Use> uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
