// Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/codec/sha256.h"
#include "base/io/file_system.h"

namespace atl {

// The SHA-256 of the first `size_bytes` bytes of `file`, read in pieces.
// DATA_LOSS: it ends early; the message names `path`. Others: the file's.
absl::StatusOr<codec::Sha256Digest> HashFile(const RandomAccessFile& file,
                                             int64_t size_bytes,
                                             const std::string& path);

}  // namespace atl
