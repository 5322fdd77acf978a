// Completes a run file's spec with values that follow from the model and data.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/run_file/run_file.h"
#include "worker/api/run_data.h"

namespace atl::cli {

// Fills in the layout: its tensors and fragment count. Reads the list of
// tensors of an external model.
//
// INVALID_ARGUMENT: [model] or the list is invalid, or it has fewer layers or
// tensors than fragments. NOT_FOUND: there is no list.
absl::Status CompleteLayout(RunFile* run);

// Fills in the layout and, unless the file gives it, data.fingerprint, which
// reads the whole data set; with data.url it reads only the manifest, and also
// fills in data.format. For a run with an import it also fills in [model]
// and init, which reads the whole model. An external model has no data and no
// config.json.
//
// INVALID_ARGUMENT: the model or data is invalid, or [model] contradicts the
// model to import. NOT_FOUND: no such model or data. DATA_LOSS: the model is
// damaged. With data.url also those of the store, which `open_store` opens.
absl::Status CompleteSpec(
    RunFile* run,
    const worker::StoreOpener& open_store = worker::OpenStoreOfUrl);

// Refuses a run that only a trainer of its own can train: `command` ("atoll dev
// up") starts none. INVALID_ARGUMENT.
absl::Status RefuseExternal(const RunFile& run, absl::string_view command);

}  // namespace atl::cli
