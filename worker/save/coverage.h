// Which elements of a model the files of a local checkpoint cover together.
// Pure. Thread-compatible.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"

namespace atl::worker {

class Coverage {
 public:
  // Adds one file's ranges of the model order, which do not overlap. DATA_LOSS:
  // another file has some of these elements.
  absl::Status Add(absl::Span<const IndexRange> spans);

  // DATA_LOSS: the files lack elements of `held`; the message names them.
  absl::Status Check(const HeldLayout& held) const;

 private:
  std::vector<IndexRange> covered_;  // Rising, not touching.
};

}  // namespace atl::worker
