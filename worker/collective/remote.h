// The way from one rank to the ranks of its group in other processes. An
// interface, implemented in tcp/. Two ranks of a group have one byte stream in
// each direction; a call's header precedes its bytes.

#pragma once

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

// A rank's description of its call. On the wire: little-endian, 40 bytes.
struct CallHeader {
  static constexpr uint32_t kMagic = 0x314c5441;  // "ATL1"

  uint32_t magic = kMagic;
  uint8_t kind = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint8_t reserved = 0;
  int32_t root = 0;
  int32_t rank = 0;         // The sender.
  int64_t call_number = 0;  // Collective calls so far; 0 for transfers.
  int64_t count = 0;
  int64_t byte_count = 0;  // Bytes that follow for this receiver.
};
static_assert(sizeof(CallHeader) == 40);

// Peers are ranks of the group. Thread-compatible, except Wake.
class RemoteLinks {
 public:
  struct Send {
    int peer = 0;
    const CallHeader* header = nullptr;  // Sent first, unless null.
    const void* data = nullptr;
    int64_t byte_count = 0;
  };
  struct Receive {
    int peer = 0;
    bool has_header = false;  // Comes first, and is checked.
    void* data = nullptr;
    int64_t byte_count = 0;
  };
  // Checks a header from `peer`, which should send `byte_count` bytes.
  using Check = absl::FunctionRef<absl::Status(
      int peer, const CallHeader& header, int64_t byte_count)>;

  virtual ~RemoteLinks() = default;

  // Runs all transfers concurrently; returns after the last. Entries of one
  // peer within `sends`, or within `receives`, run in order.
  //
  // UNAVAILABLE: a peer closed its connection. DEADLINE_EXCEEDED: names the
  // peer. Also errors of `check` and of `interrupted`, called after Wake.
  virtual absl::Status Run(absl::Span<const Send> sends,
                           absl::Span<const Receive> receives, Check check,
                           absl::FunctionRef<absl::Status()> interrupted,
                           absl::Time deadline) = 0;

  // Makes a running or the next Run call `interrupted`. Thread-safe.
  virtual void Wake() = 0;
};

// The way from a process to the other processes of its world. Thread-safe.
class RemoteWorld {
 public:
  virtual ~RemoteWorld() = default;

  // Connects one rank of group `group` with its ranks in other processes.
  // `world_ranks[i]` is rank i's rank in the world. All ranks call it.
  // UNAVAILABLE, DEADLINE_EXCEEDED: a peer could not be reached in time.
  virtual absl::StatusOr<std::unique_ptr<RemoteLinks>> Connect(
      const std::string& group, int rank, const std::vector<int>& world_ranks,
      absl::Time deadline) = 0;

  // Returns once the world knows what other processes sent before the call, so
  // that a closed connection does not hide its cause. Waits 1 s at most.
  virtual void ReadNews() = 0;

  // Best effort, without blocking: tells all other processes that the world has
  // ended, or that `rank` of `group` left after `call_count` calls.
  virtual void TellBroken(const absl::Status& status) = 0;
  virtual void TellLeft(const std::string& group, int rank,
                        int64_t call_count) = 0;
};

}  // namespace atl::collective
