// Whole files over a FileSystem. Thread-safe as it is.

#ifndef BASE_IO_FILES_H_
#define BASE_IO_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl {

// The bytes of a file.
//
// RESOURCE_EXHAUSTED: it has more than `bytes_max`. Else as OpenForRead.
absl::StatusOr<std::string> ReadFile(FileSystem& file_system,
                                     const std::string& path,
                                     int64_t bytes_max = int64_t{1} << 30);

// Replaces `path` by `bytes`: after a crash at any time the file is the old one
// or the new one, whole. Durable on return. Writes PATH.tmp, syncs it, renames
// it and syncs the directory. After an error the old file stands, and PATH.tmp
// is gone where it could be removed.
absl::Status WriteFileAtomically(FileSystem& file_system,
                                 const std::string& path,
                                 absl::string_view bytes);

// The directory that holds `path`; "." if it names none.
std::string DirectoryOf(const std::string& path);

}  // namespace atl

#endif  // BASE_IO_FILES_H_
