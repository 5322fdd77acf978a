// The ranks of a group that live in other processes, as one rank reaches them.
//
// An interface: tcp/ implements it. What is sent between two ranks of a group
// is a stream in each direction: before the bytes of a call comes its header.

#ifndef WORKER_COLLECTIVE_REMOTE_H_
#define WORKER_COLLECTIVE_REMOTE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace atl::collective {

// What a rank tells each other rank of its call, as it lies on the wire:
// little-endian, 40 bytes.
struct CallHeader {
  static constexpr uint32_t kMagic = 0x314c5441;  // "ATL1"

  uint32_t magic = kMagic;
  uint8_t kind = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint8_t reserved = 0;
  int32_t root = 0;
  int32_t rank = 0;         // Who says it.
  int64_t call_number = 0;  // Of its collective calls; 0 for transfers.
  int64_t count = 0;
  int64_t byte_count = 0;  // That the receiver of this header will get.
};
static_assert(sizeof(CallHeader) == 40);

// Peers are ranks of the group. Thread-compatible, but for Wake.
class RemoteLinks {
 public:
  struct Send {
    int peer = 0;
    const CallHeader* header = nullptr;  // Sent first, if there is one.
    const void* data = nullptr;
    int64_t byte_count = 0;
  };
  struct Receive {
    int peer = 0;
    bool has_header = false;  // Comes first, and is checked.
    void* data = nullptr;
    int64_t byte_count = 0;
  };
  // Looks at a header that came from `peer`, who was to send `byte_count`.
  using Check = absl::FunctionRef<absl::Status(
      int peer, const CallHeader& header, int64_t byte_count)>;

  virtual ~RemoteLinks() = default;

  // Does all of them at once; returns when the last has ended. At most one
  // entry a peer in each of `sends` and `receives` may run at a time: further
  // ones of that peer follow in order.
  //
  // UNAVAILABLE: a peer closed its connection. DEADLINE_EXCEEDED: names whom
  // it waited for. What `check` and `interrupted` give, which is asked after
  // Wake.
  virtual absl::Status Run(absl::Span<const Send> sends,
                           absl::Span<const Receive> receives, Check check,
                           absl::FunctionRef<absl::Status()> interrupted,
                           absl::Time deadline) = 0;

  // Makes a Run that waits, or the next one, look at `interrupted`.
  // Thread-safe.
  virtual void Wake() = 0;
};

// How one process reaches the others of its world. Thread-safe.
class RemoteWorld {
 public:
  virtual ~RemoteWorld() = default;

  // Connects one rank of group `group` with those of other processes.
  // `world_ranks[i]` is rank i's rank in the world. All its ranks call it.
  //
  // UNAVAILABLE, DEADLINE_EXCEEDED: a peer could not be reached in time.
  virtual absl::StatusOr<std::unique_ptr<RemoteLinks>> Connect(
      const std::string& group, int rank, const std::vector<int>& world_ranks,
      absl::Time deadline) = 0;

  // Returns once what other processes had told this one before the call is
  // known to the world: a connection that ends is often the second news of what
  // happened. Waits 1 s at most.
  virtual void ReadNews() = 0;

  // Tells all other processes, as far as they can be told at once, that the
  // world has ended, or that `rank` of `group` left after `call_count` calls.
  virtual void TellBroken(const absl::Status& status) = 0;
  virtual void TellLeft(const std::string& group, int rank,
                        int64_t call_count) = 0;
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_REMOTE_H_
