// Makes a run file's spec whole: what follows from the model and the data.

#ifndef CLI_COMMANDS_COMPLETE_SPEC_H_
#define CLI_COMMANDS_COMPLETE_SPEC_H_

#include "absl/status/status.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

// Fills in layout.tensors and, unless the file gives one, data.fingerprint,
// which reads the whole data set.
//
// INVALID_ARGUMENT: no such model or data. NOT_FOUND: the data is not there.
absl::Status CompleteSpec(RunFile* run);

}  // namespace atl::cli

#endif  // CLI_COMMANDS_COMPLETE_SPEC_H_
