// The data set of a manifest, in the order BY_FILE (worker/data/DESIGN.md, Data
// by URL): a data shard is whole files, which are read one after another.

#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/data_set.h"
#include "worker/data/file_source.h"
#include "worker/data/manifest.h"

namespace atl::worker {

// Checks what `spec` says about the data of `manifest`, which CheckManifest
// accepts. INVALID_ARGUMENT: another format or order, or more data shards than
// training files. FAILED_PRECONDITION: another fingerprint, if `spec` has one.
absl::Status CheckManifestFits(const v1::DataSpec& spec,
                               const Manifest& manifest);

// Tokens of training files come first, then held-out ones, each in the
// manifest's order. Read opens files of `source` as it needs them, keeps one
// training and one held-out file open, and tells `source` which comes next.
// Ready asks for the files that Read would open.
//
// As CheckManifestFits. The data set's Fingerprint reads no file. Its Read has
// the errors of FileSource::Open too.
absl::StatusOr<std::unique_ptr<DataSet>> MakeByFileDataSet(
    const v1::DataSpec& spec, Manifest manifest,
    std::unique_ptr<FileSource> source);

}  // namespace atl::worker
