// NCCL and the part of the CUDA runtime that nccl/ calls, over host memory: so a
// world of devices is tested on machines without one. Linked in place of both.
//
// Nothing is done at once: a stream is a thread, a communicator that does not
// block says ncclInProgress a few times, and only then is what was asked of it
// on its stream. A group's first call waits on all its ranks, as connections do.
// What NCCL forbids ends the process: a call of a communicator that is still in
// progress, was aborted or destroyed, or is split while calls are under way.
// Reductions are those of reduction.h.
//
// Thread-safe.

#ifndef WORKER_COLLECTIVE_NCCL_TESTING_EMULATED_NCCL_H_
#define WORKER_COLLECTIVE_NCCL_TESTING_EMULATED_NCCL_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>

namespace atl::collective {

// Queues what a kernel would do.
void Launch(cudaStream_t stream, std::function<void()> kernel);

// Waits until cudaEventQuery has said so often from now on, to any thread, that an
// event is not there yet.
void AwaitUnreadyQueries(int count);

// From now on communicators of this rank of the world say that they failed.
void FailCommunicators(int world_rank);
void FailNoCommunicators();

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_NCCL_TESTING_EMULATED_NCCL_H_
