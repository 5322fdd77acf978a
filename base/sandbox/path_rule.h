// A path, and what a sandboxed process may do there. Pure.

#pragma once

#include <string>

namespace atl {

// At the path and below it.
enum class PathAccess {
  kList,     // List directories.
  kRead,     // Read files, list directories.
  kExecute,  // kRead, and execute files.
  kDevice,   // kRead, and write to devices and control them (ioctl).
  kWrite,    // kRead, and write, make, rename and remove files and directories.
  kSocket,   // Make unix sockets, and remove files. Reads nothing.
};

struct PathRule {
  std::string path;
  PathAccess access = PathAccess::kRead;

  bool operator==(const PathRule&) const = default;
};

}  // namespace atl
