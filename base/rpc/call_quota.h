// How many calls the holder of one certificate may have open on a port.
//
// gRPC bounds the open streams of a connection. A peer that resets each stream
// at once stays below that bound, while its calls take memory and time ("rapid
// reset", CVE-2023-44487). So a call that its peer gives up counts on, and is
// forgotten at a fixed rate, far above that of callers that give up on calls
// now and then.
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
  // Calls of a certificate that are open, or were given up within the last
  // seconds.
  static constexpr int kOpenMax = 256;
  static constexpr double kForgottenPerSecond = 100;
  // Calls within a second that a flood has at least.
  static constexpr int kBusyCount = 16;
  // Calls refused in a row, after which the caller's connections are shut.
  static constexpr int kRefusedMax = 256;

  enum class Answer {
    kAdmitted,
    kRefused,
    kAbusive,  // Refused; its connections should be shut.
  };
  enum class Outcome {
    kDone,
    kGivenUp,  // Its peer cancelled it, or went away.
  };

  // A call of `certificate` begins.
  Answer Start(absl::string_view certificate, absl::Time now);
  // An admitted call has ended. Each ends once.
  void End(absl::string_view certificate, Outcome outcome, absl::Time now);

  // The certificate with the most calls that were given up just now or refused
  // in a row, among those that began a call in the last second; empty: none has
  // kBusyCount.
  std::string FindAbusive(absl::Time now) const;
  // The certificate that began the most calls in the last second; empty: none
  // began kBusyCount. It may be an honest one.
  std::string FindBusiest(absl::Time now) const;

  // Certificates that are remembered.
  size_t count() const;

 private:
  struct Use {
    int open = 0;
    double given_up = 0;
    absl::Time time;        // given_up is as of then.
    int refused_count = 0;  // Since the last that was admitted.
    absl::Time second_begin = absl::InfinitePast();
    int begun_count = 0;    // Calls since second_begin.
  };

  // The certificate with the most, at least kBusyCount, of what `count` gives.
  template <typename Count>
  std::string FindMost(absl::Time now, Count count) const;
  static double GivenUp(const Use& use, absl::Time now);
  static void Forget(Use& use, absl::Time now);
  void RemoveIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Use> uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
