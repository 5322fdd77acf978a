// Runs this program again, one process for each rank of an NCCL world.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/cuda_check/report.h"
#include "worker/collective/tcp/tcp_world.h"

namespace atl::engine::check {

// The rank and the world of this process.
struct NcclRank {
  int rank = 0;
  int size = 1;
  // "127.0.0.1:PORT", where rank 0 listens. In a control: the file of NCCL's
  // id.
  std::string rendezvous;
  int device = 0;
};

struct RankRun {
  std::string name;  // Name of its checks.
  int size = 1;
  int device = 0;
  std::vector<std::string> flags;  // Further ones.
  std::string rendezvous;          // Empty: a free port.
  int victim = -1;                 // The rank that kills itself; -1: none.
  bool is_control = false;
  // A rank is killed at the earlier of these: `limit` after the start,
  // `end_limit` after the end of the first rank.
  absl::Duration limit = absl::InfiniteDuration();
  absl::Duration end_limit = absl::Seconds(20);
};

// Starts `run.size` processes and waits for their ends. Each has its own
// NCCL_HOSTID, so NCCL takes them for separate hosts that may share a device.
// Relays each line that they print to `report`. A rank that crashes or is
// killed at a limit is a failed check, which says where the rank stood; so is a
// victim that does not kill itself.
void RunRanks(const RankRun& run, Report& report);

// The world in which these processes meet, one rank each, before NCCL.
//
// Errors: those of TcpWorld::Join.
absl::StatusOr<std::unique_ptr<collective::TcpWorld>> MeetRanks(
    const NcclRank& at);

}  // namespace atl::engine::check
