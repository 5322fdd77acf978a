// Limits this process to a list of paths, by Linux' Landlock.
//
// Landlock permits nothing that a rule does not name. It holds for opening,
// making, renaming and removing files, not for what is open already, and not
// for the network. Its rules are for the file or directory that a path means
// now: a file that later replaces it has no rule.
//
// Each version (ABI) of the kernel's Landlock adds rights:
//   1  Linux 5.13   the rights of files and directories
//   2  Linux 5.19   renames between directories (before: always refused)
//   3  Linux 6.2    truncate(2) by a path (before: always permitted)
//   5  Linux 6.10   ioctl of devices (before: always permitted)
//   6  Linux 6.12   signals and abstract unix sockets to other processes

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/sandbox/path_rule.h"

namespace atl {

// The kernel's ABI; 0: it has no Landlock, or it is switched off.
int LandlockAbi();

// Landlock's rights for `access` to a directory or to a file. Pure.
uint64_t LandlockRights(PathAccess access, bool is_directory);

// Limits the calling thread, and threads and processes that it makes later, to
// `rules`. This cannot be undone. The thread gains no privileges by execve any
// longer (no_new_privs). From ABI 6 on it sends no signal to processes outside,
// and with `hides_sockets` it reaches no abstract unix socket of theirs.
//
// A path that does not exist, or cannot be opened, is left out.
// FAILED_PRECONDITION: the kernel refuses; the thread is not limited. `abi` is
// LandlockAbi().
absl::Status LimitPaths(int abi, absl::Span<const PathRule> rules,
                        bool hides_sockets);

}  // namespace atl
