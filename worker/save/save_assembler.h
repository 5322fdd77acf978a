// Puts what one process needs of a SAVE together from the files of those that
// wrote it, who may have been more or fewer, and have held other parts of the
// model. A SAVE is one of elements and blocks, not of processes: no bit of it
// changes.
//
// Pure. Thread-compatible.

#ifndef WORKER_SAVE_SAVE_ASSEMBLER_H_
#define WORKER_SAVE_SAVE_ASSEMBLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/codec/codec.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/save/coverage.h"
#include "worker/save/save_file.h"

namespace atl::worker {

class SaveAssembler {
 public:
  // For a process that has `held`, which must outlive it; of the save that
  // `outline` is one file of. `codec` is the run's for contributions.
  SaveAssembler(const HeldLayout& held, const codec::Codec& codec,
                const SaveOutline& outline);

  // Takes what is wanted of one file.
  //
  // DATA_LOSS: it is of another layout, codec or save than the others, or has
  // elements that one before had. The assembler is of no use then.
  absl::Status Add(Save part);

  // What the process needs, as if it had written it.
  //
  // DATA_LOSS: elements were in no file; the message says which.
  absl::StatusOr<Save> Finish();

 private:
  // Whether files have an array; those without elements cannot say.
  using Presence = std::optional<bool>;

  absl::Status AddContributions(const HeldLayout& source, Save& part);
  absl::Status AddFeedback(const HeldLayout& source, Save& part);

  const HeldLayout& held_;
  const codec::Codec& codec_;
  Save save_;
  std::vector<Presence> arrays_;
  std::vector<Presence> after_;  // By feedback: e after a contribution.
  Coverage coverage_;
};

}  // namespace atl::worker

#endif  // WORKER_SAVE_SAVE_ASSEMBLER_H_
