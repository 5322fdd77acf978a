// Objects in an S3 bucket, below a prefix. Thread-compatible.
//
// A writer holds one part in memory. An object of at most one part is one PUT,
// a longer one a multipart upload, which the writer's end aborts if it was not
// committed. A killed process leaves its parts. RemoveUnfinished aborts uploads
// that the server lists; for the others give the bucket a lifecycle rule that
// aborts incomplete uploads.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/object_store/object_store.h"
#include "base/object_store/s3_session.h"

namespace atl {

// S3 takes parts of 5 MiB to 5 GiB, and at most 10,000 of them: 80 GiB with
// this size.
inline constexpr int64_t kS3PartBytes = 8 << 20;

// `part_bytes` > 0.
std::unique_ptr<ObjectStore> MakeS3Store(std::string prefix,
                                         std::unique_ptr<S3Session> session,
                                         int64_t part_bytes = kS3PartBytes);

}  // namespace atl
