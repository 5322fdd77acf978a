// Completes a run file's spec with values that follow from the model and data.

#pragma once

#include "absl/status/status.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

// Fills in the layout: its tensors and fragment count.
//
// INVALID_ARGUMENT: [model] is invalid, or has fewer layers than fragments.
absl::Status CompleteLayout(RunFile* run);

// Fills in the layout and, unless the file gives it, data.fingerprint, which
// reads the whole data set. For a run with an import it also fills in [model]
// and init, which reads the whole model.
//
// INVALID_ARGUMENT: the model or data is invalid, or [model] contradicts the
// model to import. NOT_FOUND: no such model or data. DATA_LOSS: the model is
// damaged.
absl::Status CompleteSpec(RunFile* run);

}  // namespace atl::cli
