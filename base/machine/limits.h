// The memory and the processors that this process may use: the smaller of the
// host's and its control group's limits (cgroup v1 and v2), and of its CPU
// affinity.
//
// A container that counted the host's memory would plan with more than it has
// and be killed.

#pragma once

#include <cstdint>

namespace atl {

// Bytes of memory: physical memory, or the smallest memory limit of this
// process's cgroup and its ancestors. Read at each call.
int64_t MemoryLimitBytes();

// Processors, >= 1: those of the CPU affinity, or the smallest CPU quota of
// this process's cgroup and its ancestors, rounded up.
int ProcessorCount();

}  // namespace atl
