// Files in directories that a person chose. These calls never remove, truncate
// or replace a file that this program did not make, unless its path is the one
// that the person gave.
//
// Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"

namespace atl {

// As WriteFileAtomically, but the temporary file has a random name in the same
// directory, so PATH.tmp stays as it is. Follows a link of this user or root. A
// crash may leave the temporary file.
//
// FAILED_PRECONDITION, NOT_OURS: it is a link of another user.
absl::Status ReplaceFile(FileSystem &file_system, const std::string &path,
                         absl::string_view bytes);

// The same for a name that this program chose: a link is replaced, and what a
// crash of an earlier call left is removed. The file has mode 0600. Writes
// `pieces`, back to back.
// Requires: no other process replaces the file.
absl::Status ReplaceOwnFile(FileSystem &file_system, const std::string &path,
                            absl::Span<const absl::string_view> pieces);

// Returns NAME for NAME.ID.tmp, the name of a temporary file of ReplaceOwnFile.
// Returns any other name unchanged.
absl::string_view OwnFileName(absl::string_view name);

// ReplaceFile for the --port-file of a program: `text` is "PORT" or
// "HOST:PORT". Nothing if `path` is empty.
//
// ALREADY_EXISTS: the file exists and is no port file. Others as ReplaceFile.
absl::Status WritePortFile(const std::string &path, absl::string_view text);

}  // namespace atl
