// The limits that control groups set for this process. A pure function of the
// files below a root, so that a test can make a tree of them.
//
// /proc/self/mountinfo says where the hierarchies of cgroup v1 and v2 are
// mounted, and /proc/self/cgroup says which group of each is this process's.
// The group and all its ancestors up to the mount limit the process. A
// container often sees its own group at the mount point, while
// /proc/self/cgroup has the host's path. Directories that do not exist are
// skipped, so the mount point is read then.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace atl {

struct CgroupLimits {
  // The smallest of memory.max and memory.high (v2), memory.limit_in_bytes
  // (v1). Version 1 writes a huge number for "no limit".
  std::optional<int64_t> memory_bytes;
  // The smallest quota per period: cpu.max (v2), cpu.cfs_quota_us (v1).
  std::optional<double> processors;
};

// `root`: "" for this machine, or a directory with proc/ and sys/. Files that
// cannot be read or parsed limit nothing.
CgroupLimits ReadCgroupLimits(const std::string& root);

}  // namespace atl
