// Files in directories that a person chose. These calls never remove, truncate
// or replace a file that this program did not make, unless its path is the one
// that the person gave.
//
// Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl {

// The kind of file that a path names. Links are not followed.
enum class NameUse {
  kFree,   // Nothing.
  kFile,   // A regular file.
  kOther,  // A directory, a link, a device, ...
};

// The system's errors; NOT_FOUND: never.
absl::StatusOr<NameUse> FindNameUse(const std::string &path);

// Makes an empty file, with the umask's permissions. ALREADY_EXISTS: the name
// is in use, also by a link.
absl::Status CreateNewFile(const std::string &path);

// As WriteFileAtomically, but the temporary file has a random name beside
// `path`, so PATH.tmp stays as it is. A link is followed. A crash may leave the
// temporary file.
absl::Status ReplaceFile(FileSystem &file_system, const std::string &path,
                         absl::string_view bytes);

// ReplaceFile for the --port-file of a program: `text` is "PORT" or
// "HOST:PORT".
//
// ALREADY_EXISTS: the file exists and is no port file.
absl::Status WritePortFile(const std::string &path, absl::string_view text);

}  // namespace atl
