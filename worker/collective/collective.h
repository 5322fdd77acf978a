// The ranks of one group and what they do together, as one rank sees it.
//
// Thread-compatible: one thread at a time calls a rank's Collective, except
// Abort, which any thread may call at any time. Each rank has its own object.
//
// Order. A Collective is a stream: its calls happen one after the other, in the
// order of Run and Start. All ranks of a group make the same calls in the same
// order; between two ranks, the sends of one pair up with the receives of the
// other in order. Two groups are two streams and know nothing of each other: a
// rank that waits for a call of one group while its peer waits for a call of
// another waits until the bound. Ranks therefore start the calls of different
// groups in one order too, or keep them apart with Start.
//
// Bits. A reduction is the fixed tree of reduction.h over ranks: a result is a
// function of the group's size and of that element of each rank alone, not of
// arrival, counts, chunks, threads, or of where the ranks run.
//
// Errors. The first error of any rank ends the world for all of them: every
// pending and every later call of every group of it returns that error, at
// once. What the buffers hold then is undefined. Build a new world.
//
//   UNAVAILABLE        a rank died, left or aborted; the message says which
//   INVALID_ARGUMENT   ranks made different calls (the message names both), or
//                      a call that makes no sense
//   DEADLINE_EXCEEDED  a rank did not come in time; the message says who waited
//                      for whom
//
// On a device calls are queued behind what the caller's stream of computation
// has queued, and Wait queues the reverse; errors may then come with a later
// call. On a CPU both mean what they say.

#ifndef WORKER_COLLECTIVE_COLLECTIVE_H_
#define WORKER_COLLECTIVE_COLLECTIVE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collective/call.h"

namespace atl::collective {

// A call that was started. Movable; thread-compatible.
class Pending {
 public:
  // What an implementation hands out.
  class Work {
   public:
    virtual ~Work() = default;
    // Waits for the end of the call; at most once.
    virtual absl::Status Wait() = 0;
  };

  // One that has ended well.
  Pending() = default;
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Pending(Pending&& other) noexcept = default;
  // Waits for what it held before.
  Pending& operator=(Pending&& other) noexcept;
  // Waits: the buffers are the caller's again. An error is not lost, for it
  // comes back with the next call.
  ~Pending();

  // Waits until the call has ended, bounded as the call is. Again gives the
  // same status.
  absl::Status Wait();

 private:
  std::unique_ptr<Work> work_;
  absl::Status status_;
};

class Collective {
 public:
  // Leaves the group: others that still need this rank get UNAVAILABLE. Calls
  // that were started are waited for.
  virtual ~Collective() = default;

  virtual int rank() const = 0;  // In this group, in [0, size()).
  virtual int size() const = 0;
  // What messages call the group: "world", "world/tp".
  virtual const std::string& name() const = 0;

  // Makes a call and waits for it and all before it.
  virtual absl::Status Run(const Call& call) = 0;

  // Makes a call behind those before it; it goes on while the caller computes.
  virtual Pending Start(Call call) = 0;

  // Makes groups of the ranks that give the same `color`, in the order of their
  // ranks here, and returns the caller's; null for a negative color. All ranks
  // call it, with the same `name`, and it counts as a call. The new group is a
  // stream of its own, also if it has the same ranks, and may outlive this one.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) = 0;

  // Ends the world for all ranks: UNAVAILABLE, with this rank and `reason`.
  // Thread-safe.
  virtual void Abort(absl::string_view reason) = 0;

  // OK while this rank knows of no end of the world, else what it ended with.
  // Waits for nobody. Thread-safe.
  virtual absl::Status status() const { return absl::OkStatus(); }

  // --- The calls that are made most, waited for ------------------------------

  absl::Status Barrier() { return Run(Call::Barrier()); }
  absl::Status AllReduce(absl::Span<float> data,
                         Reduction reduction = Reduction::kSum) {
    return Run(Call::AllReduce(DataType::kF32, reduction, data.data(),
                               data.data(), static_cast<int64_t>(data.size())));
  }
  absl::Status Broadcast(absl::Span<float> data, int root) {
    return Run(Call::Broadcast(DataType::kF32, data.data(),
                               static_cast<int64_t>(data.size()), root));
  }
  absl::Status Send(int peer, const void* data, int64_t byte_count) {
    return Run(Call::Transfers({SendTo(peer, data, byte_count)}));
  }
  absl::Status Receive(int peer, void* data, int64_t byte_count) {
    return Run(Call::Transfers({ReceiveFrom(peer, data, byte_count)}));
  }
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_COLLECTIVE_H_
