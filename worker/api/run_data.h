// The fields of a run's spec that follow from its data.

#pragma once

#include "absl/status/status.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/fetch/open_data.h"
#include "worker/data/local_data.h"  // IWYU pragma: export

namespace atl::worker {

// Reads the manifest at `spec.data().url()`, fills in data.format and
// data.fingerprint if they are not set, and checks that islands can read the
// data.
//
// INVALID_ARGUMENT: the URL or the manifest is wrong; the manifest contradicts
// `spec`; a data shard has no file, or a file no window; nothing is held out
// although the run evaluates. FAILED_PRECONDITION: another fingerprint. Others:
// the store's.
absl::Status CompleteDataByUrl(v1::RunSpec& spec,
                               const StoreOpener& open_store = OpenStoreOfUrl);

}  // namespace atl::worker
