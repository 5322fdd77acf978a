// Emulates NCCL and the part of the CUDA runtime that nccl/ uses, over host
// memory, for tests without a device. Link it in place of both.
//
// Everything is asynchronous: a stream is a thread, and a nonblocking
// communicator returns ncclInProgress a few times before it queues the work. A
// group's first call waits for all its ranks, as connections do. Reductions are
// those of reduction.h. Thread-safe.
//
// An abort waits until the communicator's kernels have ended, also if they are
// queued behind others; within a group call, once all are aborted.
//
// These end the process: a call that NCCL forbids (on a communicator that is in
// progress, aborted or destroyed, or a split while calls are running), and an
// abort that waits for a minute.

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>

namespace atl::collective {

// Queues a kernel.
void Launch(cudaStream_t stream, std::function<void()> kernel);

// Waits for `count` more cudaErrorNotReady of cudaEventQuery, in any thread.
void AwaitUnreadyQueries(int count);

// From now on communicators of this rank of the world report failure.
void FailCommunicators(int world_rank);
void FailNoCommunicators();

// Runs `run` in each abort of a split, before NCCL's last write to the split's
// result. Null: nothing.
void OnAbortedSplit(std::function<void()> run);

// From now on a device runs one collective kernel at a time: the one that was
// launched first if NCCL orders launches, and on ranks with an even number.
// Otherwise the newer one of two.
void RunOneKernelAtATime(bool enabled);

}  // namespace atl::collective
