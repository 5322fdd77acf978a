// Limits how many lines of one kind a log gets: a remote caller that causes a
// line must not fill the disk.
//
// Pure. Thread-compatible.

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace atl {

class LogLimit {
 public:
  // A kind's window begins with its first line. The lines of a window beyond
  // the maximum are left out, and counted.
  static constexpr absl::Duration kWindow = absl::Seconds(10);
  // Kinds with an open window. With more, kinds that differ only by subject are
  // one kind.
  static constexpr size_t kKindsMax = 1024;

  // The place of a log statement, and whom its lines are about.
  struct Kind {
    std::string file;
    int line = 0;
    int severity = 0;
    std::string subject;  // May be empty.
    auto operator<=>(const Kind&) const = default;
  };
  struct LeftOut {
    Kind kind;
    int64_t count = 0;
  };

  // True if a line of `kind` must be written at `now`; false if it is left out,
  // because its window has `lines_max` lines. TakeEnded(now) must come first.
  bool Admit(Kind kind, int lines_max, absl::Time now);

  // Ends the windows that are over at `now`, and returns the kinds that had
  // lines left out. A clock that was set back ends all windows.
  std::vector<LeftOut> TakeEnded(absl::Time now);

 private:
  struct Window {
    absl::Time begin;
    int line_count = 0;
    int64_t left_out_count = 0;
  };

  std::map<Kind, Window> windows_;
  absl::Time newest_ = absl::InfinitePast();  // TakeEnded's newest time.
  absl::Time first_end_ = absl::InfiniteFuture();  // When a window ends next.
};

}  // namespace atl
