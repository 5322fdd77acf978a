// The sandbox of `atoll join`: the command finds out what its island needs,
// limits itself to these paths by Landlock, and executes itself again. A limit
// holds for the calling thread and what it starts, so the second life has it on
// all threads.
//
// The second life knows itself by a mark in its environment, which has its
// process id: processes that it starts are not marked.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/sandbox/island_paths.h"
#include "cli/settings/settings.h"

namespace atl::cli {

struct SandboxMark {
  bool is_inside = false;
  // The directory of the enrolment that the first life has made or found; empty:
  // none. So the second life needs no join string.
  std::string enrolment_directory;
};

// The mark of the process `pid` in its environment. Pure.
SandboxMark ReadSandboxMark(const Environment& environment, int pid);

// Paths that every island needs: libraries, devices, the machine's name
// resolution and authorities. `program` is the path of the running binary.
IslandPaths FindIslandPaths(const Environment& environment,
                            const std::string& program);

struct SandboxRequest {
  IslandPaths paths;  // Absolute.
  // Directories that are created if they are missing, and writable inside.
  std::vector<std::string> own_directories;
  std::string temporary_directory;     // Created, writable; replaces TMPDIR.
  std::vector<std::string> arguments;  // The command line, argv[0] first.
  Environment environment;
  std::string enrolment_directory;
  bool hides_sockets = true;
  bool is_required = false;
};

// SANDBOX_UNAVAILABLE, exit code 10: this kernel has no Landlock.
absl::Status CheckSandbox();

// Executes this program again inside the sandbox. Returns only
//   OK: the kernel has no Landlock, or refuses; logged as a warning. With
//       `is_required`: SANDBOX_UNAVAILABLE, exit code 10.
//   INTERNAL: the program cannot be executed again. The caller's thread is
//       limited.
// A join string among the arguments becomes "-", so `ps` no longer shows it.
absl::Status EnterSandbox(SandboxRequest request);

// `status`, with a hint at the sandbox if this may be the reason: a file was
// refused by this machine, and not by a peer. Pure.
absl::Status HintAtSandbox(const absl::Status& status);

}  // namespace atl::cli
