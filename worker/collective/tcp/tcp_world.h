// A world of several processes that find each other as torchrun's do: process 0
// listens at a known address, the others dial it.
//
// Ranks of one process share memory, others are reached over TCP. Each process
// brings its own ranks, and ranks are numbered through the processes in order.
// A process is let in if it proves that it knows the world's secret, as process
// 0 does to it (connection.h), and wants the same world; else it is refused
// with a reason, as is a second one with the same index.

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
  // The same for all, and known to nobody else; not empty.
  std::string secret;
  // The bytes of calls are not encrypted once both ends know each other: for
  // processes of one machine, or a network that nobody else is on. All want the
  // same.
  bool calls_in_the_clear = false;
  absl::Duration join_timeout = absl::Minutes(5);  // Until all are there.
  // Connections at a time of whom nothing is known yet, >= 1.
  int strangers_max = 1024;
  WorldOptions world;
};

// Thread-compatible.
class TcpWorld {
 public:
  // Returns once all processes are there and connected.
  //
  // INVALID_ARGUMENT: options that make no sense, or who listens there is no
  // process of a world. PERMISSION_DENIED: process 0 has another secret.
  // FAILED_PRECONDITION: process 0 wants another world, or its world is
  // complete. ALREADY_EXISTS: the index is taken. DEADLINE_EXCEEDED: somebody
  // did not come; process 0's message says who, and who was refused last.
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
