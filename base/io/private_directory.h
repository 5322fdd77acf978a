// Directories that other users of the machine may reach: made for this user
// alone, and refused if another user controls them.
//
// An owner is trusted if it is root or the process's effective user. Access
// that a group has is its owner's decision, for example of a Kubernetes volume,
// and is left alone.
//
// Thread-safe. The errors of all: FAILED_PRECONDITION with the reason NOT_OURS:
// another user controls the path; others as of FileSystem.

#pragma once

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace atl {

// Refuses `path`, which has this `status`, if its owner is not trusted.
absl::Status CheckOwner(const struct stat& status, const std::string& path);

// Makes a directory with mode 0700, durably, and its parents as usual. Refuses
// one that exists, or a link to it, if its owner is not trusted.
absl::Status MakePrivateDirectory(const std::string& path);

// MakePrivateDirectory for what only this user's programs need. An existing
// directory of this user gets mode 0700 if it is empty. Any other keeps its
// mode, and a WARN tells if all users may read or change it.
absl::Status PrepareDataDirectory(const std::string& path);

// Refuses a path that another user can lead elsewhere: each directory on it
// must have a trusted owner, and the sticky bit if all users may write it.
// Requires: `path` exists, and has no links (std::filesystem::canonical).
absl::Status CheckPathOwners(const std::string& path);

// The file that `path` leads to. Refuses links whose owner is not trusted.
// `path` itself if there is no file.
absl::StatusOr<std::string> FollowTrustedLinks(const std::string& path);

}  // namespace atl
