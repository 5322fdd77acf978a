// A world of several processes that find each other as torchrun's do: process 0
// listens at a known address, the others dial it.
//
// Ranks of one process share memory, others are reached over TCP. Each process
// brings its own ranks, and ranks are numbered through the processes in order.
// A process is let in if it brings the run's token and wants the same world;
// else it is refused with a reason, as is a second one with the same index.
//
// Nothing is encrypted: a token keeps strangers out who cannot listen in, and
// no more. It is for machines that share a network of their own.

#ifndef WORKER_COLLECTIVE_TCP_TCP_WORLD_H_
#define WORKER_COLLECTIVE_TCP_TCP_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"
#include "worker/collective/group.h"
#include "worker/collective/tcp/process_hub.h"
#include "worker/collective/tcp/socket.h"

namespace atl::collective {

struct TcpWorldOptions {
  // Where process 0 listens: "HOST:PORT". HOST must lead to it from every other
  // process, so localhost only if all are on one machine.
  std::string rendezvous;
  // Process 0 only: listens there already, at the port of `rendezvous` or, for
  // tests, another.
  UniqueFd listener;
  int process_index = 0;
  int process_count = 1;
  int rank_count = 1;  // Of this process.
  std::string layout;  // What all must agree on, as "dp_shard=4,tp=2".
  std::string token;   // The run's secret; the same for all.
  absl::Duration join_timeout = absl::Minutes(5);  // Until all are there.
  WorldOptions world;
};

// Thread-compatible.
class TcpWorld {
 public:
  // Returns once all processes are there and connected.
  //
  // INVALID_ARGUMENT: options that make no sense. PERMISSION_DENIED: the token
  // is not process 0's. FAILED_PRECONDITION: process 0 wants another world, or
  // its world is complete. ALREADY_EXISTS: the index is taken.
  // DEADLINE_EXCEEDED: somebody did not come; process 0's message says who.
  // UNAVAILABLE: process 0 cannot listen, or one ended meanwhile.
  static absl::StatusOr<std::unique_ptr<TcpWorld>> Join(
      TcpWorldOptions options);

  // All its ranks have ended.
  ~TcpWorld();

  // The world as each rank of this process sees it; once. They and what is
  // split from them end before this object.
  std::vector<std::unique_ptr<Collective>> TakeRanks();

 private:
  TcpWorld() = default;

  // The hub uses the world until it is stopped; groups use both.
  std::unique_ptr<World> world_;
  std::unique_ptr<ProcessHub> hub_;
  std::vector<std::unique_ptr<Collective>> ranks_;
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_TCP_TCP_WORLD_H_
