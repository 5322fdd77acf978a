// A complete run's final parameters, as a file in the island's directory. With
// it a trainer that starts again after the end needs no server.
//
// RUN.ISLAND.final, mode 0600, 4 bytes a parameter: a header of text with the
// run and each fragment's version and digest, then the fragments' f32 values.
//
// Thread-compatible.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "atoll/v1/run_service.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "worker/save/save_set.h"

namespace atl::worker {

std::string FinalCopyPath(const SavePlace& place);

// Reads the copy into `fragments`, one of the layout's each. False: no copy has
// the versions and digests of `found.cut`; `fragments` is then undefined.
// Requires, as WriteFinalCopy: found.cut has all fragments, in order.
bool ReadFinalCopy(FileSystem& files, const SavePlace& place,
                   const v1::GetRunResponse& found, const RunLayout& layout,
                   const std::vector<absl::Span<float>>& fragments);

// Replaces the copy by `fragments`, durably. FAILED_PRECONDITION: they are not
// the versions of `found.cut`. Others: the file system's. After an error
// nothing has changed.
absl::Status WriteFinalCopy(FileSystem& files, const SavePlace& place,
                            const v1::GetRunResponse& found,
                            const RunLayout& layout,
                            const std::vector<absl::Span<float>>& fragments);

// Removes the copies of this island in its directory, of any run, as far as
// possible. A file of such a name that WriteFinalCopy has not made stays.
void RemoveFinalCopies(FileSystem& files, const SavePlace& place);

}  // namespace atl::worker
