// Recomputes the versions of a run from a pinned cut, the coordinator's later
// decisions and the kept contributions, read over the network. The arithmetic
// is the servers' (core/, kernels/, merge/sealed_set), but shards, streams and
// threads are not. It checks the cut against the committed digests, and each
// contribution against the sealed digest.
//
// Blocks for as long as the network and the arithmetic take. Memory: theta, the
// optimizer's state and the replica of one fragment, and kPieceBytes.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "server/client/kept_client.h"
#include "server/client/parameter_client.h"
#include "server/client/transfer.h"

namespace atl::server {

// Bytes of encoded contributions in memory, half being merged and half being
// read. At least 64 blocks of each contribution, even if that is more.
inline constexpr int64_t kPieceBytes = int64_t{64} << 20;
// Contributions that are read concurrently.
inline constexpr int kReadersMax = 4;

struct ReplayOptions {
  v1::Run run;   // With its whole layout.
  v1::Pin from;  // The cut.
  // The commits from from.commit_seq on, without a gap, as far as wanted.
  std::vector<v1::Round> rounds;
  int thread_count = 1;  // >= 1.
  // For each transfer; several run concurrently. on_waiting is called on any
  // thread, one call at a time. on_progress is not called.
  CallBounds bounds;
  // Called after each recomputed commit, fragment by fragment. May be empty.
  std::function<void(const v1::Round&)> on_commit;
};

struct ReplayDifference {
  int32_t shard = -1;  // -1: the whole fragment.
  bool is_replica = false;
  Digest128 committed;
  Digest128 replayed;
};

struct ReplayedCommit {
  int64_t commit_seq = 0;
  int32_t fragment = 0;
  int64_t version = 0;
  int contribution_count = 0;
  Digest128 committed;  // The digest in the COMMIT.
  Digest128 replayed;
  // Differences: the fragment's first, then by shard; empty: all agree.
  std::vector<ReplayDifference> differences;

  bool agrees() const { return differences.empty(); }
};

// The optimizer's arrays of a fragment's newest recomputed version, compared.
struct ReplayedState {
  int32_t fragment = 0;
  int64_t version = 0;
  // False: no shard holds that version any longer.
  bool compared = false;
  // The first array and element that differ; -1: all agree.
  int32_t array = -1;
  int64_t element = -1;
};

struct ReplayResult {
  // In the order of commit_seq. After a fragment's first difference its later
  // commits are left out, because they cannot agree.
  std::vector<ReplayedCommit> commits;
  // For each fragment that agrees and whose optimizer has state.
  std::vector<ReplayedState> states;

  const ReplayedCommit* first_difference() const;
};

// `layout`, `parameters` and `kept` are the run's; `kept` has role operator.
// FAILED_PRECONDITION: the decisions do not follow from the cut, or lack what a
// merge needs (a verdict of a run that began under an older program).
// DATA_LOSS: the cut, or a contribution, is damaged: the message names it.
// OUT_OF_RANGE: a contribution is not kept. Otherwise as ParameterClient::Pull.
absl::StatusOr<ReplayResult> Replay(const ReplayOptions& options,
                                    const RunLayout& layout,
                                    ParameterClient& parameters,
                                    KeptClient& kept);

}  // namespace atl::server
