// The coordinator's memory and disk, from what it serves. Chart limits, `atoll
// plan --kubernetes` and coordinator/BOUNDS.md follow from this model. Pure.
//
// The constants are measured by `bazel run -c opt //tests/benchmarks:control`
// and rounded up (tests/benchmarks/results/control.md). A test holds the
// measured rows and the chart's limits against the model:
// tests/benchmarks/control/cost_model_test.cc.

#pragma once

#include <cstdint>

namespace atl::coordinator {

// The load of a coordinator.
struct CoordinatorLoad {
  int64_t run_count = 1;
  int64_t island_count = 1;  // In all runs; each watches its plan.
  int64_t fragment_count = 1;
  int64_t server_count = 1;
  bool tls = true;
  // keep_round_count of the runs: rounds of each fragment in the history.
  int64_t kept_round_count = 0;
};

// Bytes, without margins.
struct CoordinatorCost {
  // The program, RocksDB's buffers, and each run.
  int64_t own_bytes = 0;
  // Connections with a plan stream: TLS, HTTP/2, gRPC, and the newest plan.
  int64_t connection_bytes = 0;
  // Members: state, phases of 256 synchronizations, and for each fragment 64
  // outcomes and what each server has stored of the open rounds.
  int64_t member_bytes = 0;
  int64_t disk_bytes = 0;

  int64_t memory_bytes() const {
    return own_bytes + connection_bytes + member_bytes;
  }
};

inline constexpr int64_t kCostKib = 1024;
inline constexpr int64_t kCostMib = 1024 * kCostKib;

inline constexpr int64_t kProgramBytes = 64 * kCostMib;
inline constexpr int64_t kRunBytes = 4 * kCostMib;
inline constexpr int64_t kTlsConnectionBytes = 128 * kCostKib;
inline constexpr int64_t kPlaintextConnectionBytes = 60 * kCostKib;
inline constexpr int64_t kMemberBytes = 28 * kCostKib;
// 64 outcomes of 32 bytes, and an index entry.
inline constexpr int64_t kMemberFragmentBytes = 3 * kCostKib;
// A contribution as one server reports it, in two open rounds.
inline constexpr int64_t kMemberShardBytes = 1 * kCostKib;

inline constexpr int64_t kLogBytes = 512 * kCostMib;
// A row of the history, and a contribution in it, as RocksDB compresses them.
inline constexpr int64_t kRoundBytes = 512;
inline constexpr int64_t kRoundMemberBytes = 80;

constexpr CoordinatorCost CostOfCoordinator(const CoordinatorLoad& load) {
  CoordinatorCost cost;
  cost.own_bytes = kProgramBytes + load.run_count * kRunBytes;
  cost.connection_bytes = load.island_count * (load.tls
                                                   ? kTlsConnectionBytes
                                                   : kPlaintextConnectionBytes);
  cost.member_bytes =
      load.island_count *
      (kMemberBytes +
       load.fragment_count *
           (kMemberFragmentBytes + load.server_count * kMemberShardBytes));
  // A kept round leaves only its row. The keys of rows rise, so a compaction
  // rewrites few of them.
  cost.disk_bytes =
      kLogBytes + load.kept_round_count * load.fragment_count *
                      (load.run_count * kRoundBytes +
                       load.island_count * kRoundMemberBytes);
  return cost;
}

}  // namespace atl::coordinator
