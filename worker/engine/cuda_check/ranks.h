// Runs this program again as the ranks of an NCCL world, a process each.

#ifndef WORKER_ENGINE_CUDA_CHECK_RANKS_H_
#define WORKER_ENGINE_CUDA_CHECK_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/tcp/tcp_world.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// Which rank of which world a process is.
struct NcclRank {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // "127.0.0.1:PORT", where rank 0 listens.
  int device = 0;
};

// `size` processes on `device`, each with an NCCL_HOSTID of its own: NCCL then
// takes them for hosts that share nothing, and lets them use one device. They
// check `part` with `seed`. What they print is relayed to `report`; a rank that
// does not end well is a failed check.
void RunNcclRanks(int size, int device, absl::string_view part, uint64_t seed,
                  Report& report);

// The world of one rank each in which these processes meet, before NCCL.
//
// Errors of TcpWorld::Join.
absl::StatusOr<std::unique_ptr<collective::TcpWorld>> MeetRanks(
    const NcclRank& at);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_RANKS_H_
