// Decides when a person is told what a client waits for, and why it waits.
// Pure: the caller has the clock and the output. Thread-compatible.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace atl::rpc {

// Due after three seconds of one wait, and then at intervals that grow from six
// seconds to five minutes.
class WaitNotice {
 public:
  static constexpr absl::Duration kFirst = absl::Seconds(3);

  // `waited`: time since the wait began. A shorter time than before is a new
  // wait.
  bool IsDue(absl::Duration waited);

 private:
  absl::Duration waited_;
  absl::Duration next_ = kFirst;
};

// Returns why a peer does not answer, by the last error of a call to it: "the
// name does not resolve here", "it refuses connections", "it does not answer"
// (OK: no call has ended), or else the error's message.
std::string DescribeSilence(const absl::Status& last);

}  // namespace atl::rpc
