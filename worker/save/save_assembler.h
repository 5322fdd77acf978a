// Assembles one process's part of a local checkpoint, or of a record, from
// files of other processes, which may differ in number and in the parts that
// they hold. Files hold elements and blocks, not ranks, so no bit changes.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/save/save_file.h"

namespace atl::worker {

// The elements of a model that a local checkpoint's files cover together.
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

class SaveAssembler {
 public:
  // For a process that holds `held`, which must outlive it. `outline` is of one
  // file of the local checkpoint. `codec` is the run's for contributions.
  // `parts`: which SaveParts were read.
  SaveAssembler(const HeldLayout& held, const codec::Codec& codec,
                const SaveOutline& outline, uint32_t parts);

  // Takes the needed elements of one file. DATA_LOSS: the file has another
  // layout, codec or local checkpoint than the earlier ones, or repeats
  // elements. Do not use the assembler after that.
  absl::Status Add(Save part);

  // The process's part, as if it had written it. DATA_LOSS: no file has some
  // elements; the message names them.
  absl::StatusOr<Save> Finish();

 private:
  // Whether files have an array; unknown while they have no elements.
  using Presence = std::optional<bool>;

  absl::Status AddContributions(const HeldLayout& source, Save& part);
  absl::Status AddFeedback(const HeldLayout& source, Save& part);
  absl::Status AddAnswers(const HeldLayout& source, Save& part);

  const HeldLayout& held_;
  const codec::Codec& codec_;
  Save save_;
  std::vector<Presence> arrays_;
  std::vector<Presence> after_;  // By feedback: e after a contribution.
  Coverage coverage_;
};

}  // namespace atl::worker
