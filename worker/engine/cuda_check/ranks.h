// Runs this program again, one process for each rank of an NCCL world.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/tcp/tcp_world.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// Which rank of which world this process is.
struct NcclRank {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // "127.0.0.1:PORT"; rank 0 listens there.
  int device = 0;
};

// Starts `size` processes on `device` that check `part`, with these further
// `flags`. Each has its own NCCL_HOSTID, so NCCL takes them for separate hosts
// that may share a device. Relays what they print to `report` as it comes. A rank
// that fails is a failed check.
void RunNcclRanks(int size, int device, absl::string_view part,
                  const std::vector<std::string>& flags, Report& report);

// The world in which these processes meet, one rank each, before NCCL.
//
// Errors: those of TcpWorld::Join.
absl::StatusOr<std::unique_ptr<collective::TcpWorld>> MeetRanks(
    const NcclRank& at);

}  // namespace atl::engine::check
