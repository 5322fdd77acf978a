// A world of several processes that meet as torchrun's do: process 0 listens at
// a known address, and the others dial it.
//
// Ranks of one process share memory; TCP connects the others. Each process
// brings its own ranks, numbered through the processes in order. Process 0
// refuses, with a reason, a process with another secret (connection.h), another
// world or an index that is taken.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"
#include "worker/collective/collective.h"
#include "worker/collective/group.h"
#include "worker/collective/tcp/process_hub.h"

namespace atl::collective {

struct TcpWorldOptions {
  // Where process 0 listens: "HOST:PORT". HOST must lead there from every other
  // process, so localhost works only on one machine.
  std::string rendezvous;
  // Process 0 only: a listening socket; tests may use another port.
  UniqueFd listener;
  int process_index = 0;
  int process_count = 1;
  int rank_count = 1;  // This process's.
  std::string layout;  // All must agree, as "dp_shard=4,tp=2".
  // The same for all processes; not empty.
  std::string secret;
  // No encryption of calls: one machine or a private network. Same for all.
  bool calls_in_the_clear = false;
  absl::Duration join_timeout = absl::Minutes(5);  // Until all are there.
  // Unidentified connections at a time, >= 1.
  int strangers_max = 1024;
  WorldOptions world;
};

// Thread-compatible.
class TcpWorld {
 public:
  // Returns once all processes are connected.
  //
  // INVALID_ARGUMENT: invalid options, or no process of a world listens there.
  // PERMISSION_DENIED: process 0 has another secret. FAILED_PRECONDITION:
  // process 0 wants another world, or its world is complete. ALREADY_EXISTS:
  // the index is taken. DEADLINE_EXCEEDED: a process did not come; process 0's
  // message names it, and the last refused one. UNAVAILABLE: process 0 cannot
  // listen, or a process ended.
  static absl::StatusOr<std::unique_ptr<TcpWorld>> Join(
      TcpWorldOptions options);

  // All ranks must have ended.
  ~TcpWorld();

  // The Collective of each rank of this process; call once. These and all
  // groups split from them must end before this object.
  std::vector<std::unique_ptr<Collective>> TakeRanks();

 private:
  TcpWorld() = default;

  // The hub uses the world until it stops; groups use both.
  std::unique_ptr<World> world_;
  std::unique_ptr<ProcessHub> hub_;
  std::vector<std::unique_ptr<Collective>> ranks_;
};

}  // namespace atl::collective
