// Makes the versions of a run again: from a pinned cut, what the coordinator
// decided after it, and the contributions that were kept, all of which may be
// read from anywhere. The arithmetic is the servers' own (core/, kernels/,
// service/sealed_set); shards, streams and threads are not, so that what agrees
// does not depend on them.
//
// Nothing is believed that can be checked: the cut's digests are those that
// were committed, and a contribution's bytes those that were sealed.
//
// Blocks, for as long as the network and the arithmetic take. In memory: theta,
// the optimizer's state and V of one fragment, and kPieceBytes of
// contributions.

#ifndef SERVER_REPLAY_REPLAY_H_
#define SERVER_REPLAY_REPLAY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

// Encoded contributions that are in memory at a time, half of them merged and
// half of them read for after that, but for at least 64 blocks of each.
inline constexpr int64_t kPieceBytes = int64_t{64} << 20;
// Contributions that are read at a time.
inline constexpr int kReadersMax = 4;

struct ReplayOptions {
  v1::Run run;   // With its whole layout.
  v1::Pin from;  // The cut.
  // Every commit from from.commit_seq on, without a gap, as far as wanted.
  std::vector<v1::Round> rounds;
  int thread_count = 1;  // >= 1.
  // Of each transfer, several of which run at a time. on_waiting is called from
  // any thread, but once at a time; on_progress is not called.
  CallBounds bounds;
  // Called after each commit that was made again; fragments come one after the
  // other. May be empty.
  std::function<void(const v1::Round&)> on_commit;
};

// A digest that came out otherwise.
struct ReplayDifference {
  int32_t shard = -1;  // -1: of the whole fragment.
  bool is_replica = false;
  Digest128 committed;
  Digest128 replayed;
};

// One commit that was made again.
struct ReplayedCommit {
  int64_t commit_seq = 0;
  int32_t fragment = 0;
  int64_t version = 0;
  int contribution_count = 0;
  Digest128 committed;  // What the COMMIT says.
  Digest128 replayed;
  // What differs, the fragment's first, then shards in order; empty: all agrees.
  std::vector<ReplayDifference> differences;

  bool agrees() const { return differences.empty(); }
};

// What the newest version of a fragment that was made again was compared with,
// beside digests: the optimizer's arrays, element by element.
struct ReplayedState {
  int32_t fragment = 0;
  int64_t version = 0;
  // False: no shard holds it any more, so that there was nothing to compare.
  bool compared = false;
  // The first array and element that differ; -1: all agree.
  int32_t array = -1;
  int64_t element = -1;
};

struct ReplayResult {
  // In the order of commit_seq. Of a fragment in which one differs, what comes
  // after it is left out: it cannot agree.
  std::vector<ReplayedCommit> commits;
  // Of each fragment that agrees and has an optimizer with a state.
  std::vector<ReplayedState> states;

  // Null if all agree.
  const ReplayedCommit* first_difference() const;
};

// `layout` is the run's. `parameters` and `kept` are of the run, and `kept` with
// the role operator.
//
// FAILED_PRECONDITION: the decisions do not follow from the cut, or lack what a
// merge needs (a verdict of a run that began under an older program).
// DATA_LOSS: the cut, or a contribution, is damaged: the message names it.
// OUT_OF_RANGE: a contribution is not kept.
// Else as ParameterClient::Pull.
absl::StatusOr<ReplayResult> Replay(const ReplayOptions& options,
                                    const RunLayout& layout,
                                    ParameterClient& parameters,
                                    KeptClient& kept);

}  // namespace atl::server

#endif  // SERVER_REPLAY_REPLAY_H_
