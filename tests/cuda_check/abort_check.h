// Checks that the ranks of a world end when one of them is killed.

#pragma once

#include <vector>

#include "absl/time/time.h"
#include "tests/cuda_check/ranks.h"
#include "tests/cuda_check/report.h"
#include "worker/engine/device/devices.h"

namespace atl::engine::check {

// Where the last rank kills itself.
struct AbortCase {
  enum Place { kTp, kSplit, kHostWait };
  Place place;
  const char* flag;  // "a"
  const char* name;  // "(a) in tp behind a gather"
};

const std::vector<AbortCase>& AbortCases();

// One rank's part of a case: 4 ranks, in the groups of the mesh dp_shard=2,
// tp=2. The last rank kills itself, `grace` after the last call that all ranks
// finish. The others must get UNAVAILABLE within 10 s of that, from the call
// that waits for the dead rank (kHostWait: from the world's status after a wait
// on the host), and an error from every later call. Then they leave the world.
void CheckAbort(const AbortCase& abort_case, const NcclRank& at,
                Devices& devices, absl::Duration grace, Report& report);

}  // namespace atl::engine::check
