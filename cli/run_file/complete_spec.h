// Makes a run file's spec whole: what follows from the model and the data.

#pragma once

#include "absl/status/status.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

// Fills in the layout: its tensors, and how many fragments it has.
//
// INVALID_ARGUMENT: [model] is none, or has fewer layers than fragments.
absl::Status CompleteLayout(RunFile* run);

// Fills in the layout and, unless the file gives one, data.fingerprint,
// which reads the whole data set; for a run that imports also [model] and
// init, which reads the whole model.
//
// INVALID_ARGUMENT: no such model or data; the file says another [model] than
// the one to import has. NOT_FOUND: model or data are not there. DATA_LOSS: the
// model is damaged.
absl::Status CompleteSpec(RunFile* run);

}  // namespace atl::cli
