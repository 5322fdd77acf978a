// A run's data: the fields of its spec that follow from it, and what is on this
// machine.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

struct LocalData {
  int64_t token_count = 0;
  // It is the run's data. False: `data` has no fingerprint, or the data has
  // more than DataSet::kHeldBytesMax tokens, which take long to read.
  bool is_compared = false;
};

// Opens the data of `data` at `path`, as an island does.
//
// FAILED_PRECONDITION: it is not the run's. Others as OpenData; messages give a
// remedy.
absl::StatusOr<LocalData> LookAtLocalData(v1::DataSpec data,
                                          const std::string& path);

}  // namespace atl::worker
