// One group of ranks and its collective calls, as one rank sees it.
//
// Thread-compatible: one thread at a time calls a rank's Collective. Any thread
// may call Abort at any time. Each rank has its own object.
//
// Order. A Collective is a stream: its calls run one after the other, in the
// order of Run and Start. All ranks of a group make the same calls in the same
// order; between two ranks, sends and receives match in order. Groups are
// independent streams: if a rank waits in one group while its peer waits in
// another, both wait until the timeout. Ranks must start the calls of different
// groups in the same order too, or use Start.
//
// Bits. A reduction is the fixed tree of reduction.h over ranks. The result
// depends only on the group's size and on that element of each rank. It does
// not depend on arrival, counts, chunks, threads or processes.
//
// Errors. The first error of any rank ends the world for all ranks: every
// pending and later call of every group returns that error at once. Buffer
// contents are then undefined. Build a new world.
//
//   UNAVAILABLE        a rank died, left or aborted; the message names it
//   INVALID_ARGUMENT   ranks made different calls (the message names both), or
//                      an invalid call
//   DEADLINE_EXCEEDED  a rank did not come in time; the message names the rank
//                      that waited and the missing one
//
// On a device a call waits for the work in the caller's compute stream, and
// Wait makes that stream wait for the call. Errors may then come with a later
// call. On a CPU both wait on the host.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collective/call.h"

namespace atl::collective {

// A started call. Movable; thread-compatible.
class Pending {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    // Waits for the end of the call; called at most once.
    virtual absl::Status Wait() = 0;
  };

  // A call that has ended with OK.
  Pending() = default;
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  // Waits, which frees the buffers. An error comes back with the next call.
  ~Pending();

  // Waits until the call has ended, within the call's timeout. Repeated calls
  // return the same status.
  absl::Status Wait();

 private:
  std::unique_ptr<Work> work_;
  absl::Status status_;
};

class Collective {
 public:
  // Waits for started calls, then leaves: ranks that need it get UNAVAILABLE.
  virtual ~Collective() = default;

  virtual int rank() const = 0;  // In this group, in [0, size()).
  virtual int size() const = 0;
  // In messages: "world", "world/tp".
  virtual const std::string& name() const = 0;

  virtual absl::Status Run(const Call& call) = 0;

  // Queues a call; it runs while the caller computes.
  virtual Pending Start(Call call) = 0;

  // Groups the ranks that give the same `color`, in their order here, and
  // returns the caller's group; null for a negative color. All ranks must call
  // it with the same `name`; it counts as a call. The new group is an
  // independent stream and may outlive this one.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) = 0;

  // Ends the world: UNAVAILABLE, with this rank and `reason`. Thread-safe.
  virtual void Abort(absl::string_view reason) = 0;

  // The error that ended the world, if this rank knows one; OK otherwise. Does
  // not block. Thread-safe.
  virtual absl::Status status() const { return absl::OkStatus(); }

  absl::Status Barrier() { return Run(Call::Barrier()); }
  absl::Status AllReduce(absl::Span<float> data,
                         Reduction reduction = Reduction::kSum) {
    return Run(Call::AllReduce(DataType::kF32, reduction, data.data(),
                               data.data(), static_cast<int64_t>(data.size())));
  }
  absl::Status Receive(int peer, void* data, int64_t byte_count) {
    return Run(Call::Transfers({ReceiveFrom(peer, data, byte_count)}));
  }
};

}  // namespace atl::collective
