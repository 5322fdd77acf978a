// Which elements of a model the files of a SAVE have together.
//
// Pure. Thread-compatible.

#ifndef WORKER_SAVE_COVERAGE_H_
#define WORKER_SAVE_COVERAGE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"

namespace atl::worker {

class Coverage {
 public:
  // Adds what one file has: ranges of the model order that do not overlap.
  //
  // DATA_LOSS: another file has some of it, too.
  absl::Status Add(absl::Span<const IndexRange> spans);

  // OK: the files have all of `held`.
  //
  // DATA_LOSS: they have not; the message says which elements are missing.
  absl::Status Check(const HeldLayout& held) const;

 private:
  std::vector<IndexRange> covered_;  // Rising, not touching.
};

}  // namespace atl::worker

#endif  // WORKER_SAVE_COVERAGE_H_
