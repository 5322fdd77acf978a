// Events of a run: the argument of RunMachine::Step.
//
// Plain values. The messages of an event must outlive the call.

#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// The identity that an island claims.
struct IslandCredentials {
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session_secret;  // 32 bytes.
};

namespace event {

// --- The first of a life -----------------------------------------------------

// Records a new run. Requires: ids and spec were validated.
struct Create {
  std::string run_id;
  const v1::RunSpec& spec;
  std::string run_uid = "";  // Random; empty: it follows from id and time.
};
// Records a run that continues from a checkpoint in the mirror. `created` is
// ContinueRun's; its spec was validated.
//
// INVALID_ARGUMENT: the run cannot begin with it, and nothing has changed.
struct Adopt {
  const storage::v1::RunCreated& created;
};
// The whole log was replayed. Every lease starts anew.
struct Recovered {};
// The whole log was replayed, and a lost log of the same cluster may have gone
// further. The run goes back to its newest checkpoint, with numbers above any
// that the lost log had; nothing is asked of its shards. Without a checkpoint it
// is paused. Its islands must join again. No other event may follow.
struct Supersede {
  int64_t jump_count = 1;  // As JumpSeq's, also for epochs.
};

// --- Islands: errors as island_service.proto has them ------------------------

// The caller adds the plan to the answer.
struct Join {
  const v1::JoinRequest& request;
  std::string session_secret;  // 32 random bytes, made by the caller.
  // The join token with which the island enrolled; empty: none.
  std::string token_id = "";
  double weight_share_max = 0;  // Token.weight_share_max.
};
// Renews the lease even if the request is refused.
//
// INVALID_ARGUMENT: a field is wrong.
// RESOURCE_EXHAUSTED, TOO_MANY_CALLS: it has progress, and the member reports
// too often.
struct Heartbeat {
  IslandCredentials island;
  const v1::HeartbeatRequest* request = nullptr;  // Null: only renews.
};
// A plan stream of the member has begun; this renews the lease too. Or its last
// one has ended: if none begins within kStreamGrace, the member is away until
// one does. A join and Recovered begin without a stream.
struct PlanStream {
  IslandCredentials island;
  bool has_begun = true;
};
struct Ready {
  IslandCredentials island;
  int64_t commit_seq = 0;
};
struct Progress {
  IslandCredentials island;
  const v1::ReportProgressRequest& request;
};
struct Leave {
  IslandCredentials island;
  v1::LeaveRequest request = {};
};

// --- Operators: errors as run_service.proto has them -------------------------

struct Pause {};
struct Resume {};
struct Cancel {};
struct RemoveIsland {
  std::string island_id;
  bool readmit = false;
  // Discards its undecided contributions too. Not with `readmit`.
  bool revoke = false;
};
// A token was revoked with its islands: their memberships end.
struct RevokeToken {
  std::string token_id;
};
struct Export {
  const v1::ExportCheckpointRequest& request;
};
// Back to a pinned cut, under the next run_epoch.
struct Restore {
  const v1::RestoreRunRequest& request;
};

// --- The mirror --------------------------------------------------------------

// An attempt to complete a checkpoint of MirrorWork in the mirror has ended, or,
// without pin_id, one to own the run there.
// Ignored if the run has gone on without that checkpoint.
struct MirrorEnded {
  int64_t run_epoch = 0;
  std::string pin_id;
  int64_t commit_seq = 0;
  std::string error;  // Why it failed; empty: the checkpoint is whole.
  // With `error`: the run_epoch of another owner of the run's checkpoints there,
  // at least `run_epoch`; 0: no other one.
  int64_t owner_epoch = 0;
};

// --- Servers -----------------------------------------------------------------

// A shard's report. Ignored unless `server_id` owns the shard. The caller has
// checked that the report comes from the server's newest incarnation. It is moved
// from.
struct ShardReported {
  std::string server_id;
  v1::ShardReport& report;
  int64_t report_seq = 0;  // ReportShardsRequest.report_seq.
};
// A server registered, returned or went away. If `restarted`, the earlier
// reports of its shards are void.
struct ServerChanged {
  std::string server_id;
  bool restarted = false;
};

// The shards on `from` belong to `to` now, or to another data directory of the
// same server.
//
// FAILED_PRECONDITION: SERVER_TAKEN, MISSING_FEATURES: `to` cannot have them.
struct MoveShards {
  std::string from;
  std::string to;
};

// --- Time --------------------------------------------------------------------

// Time passed; something may be due.
struct Tick {};

}  // namespace event

using RunEvent =
    std::variant<event::Create, event::Adopt, event::Recovered,
                 event::Supersede, event::Join, event::Heartbeat,
                 event::PlanStream, event::Ready, event::Progress, event::Leave,
                 event::Pause, event::Resume,
                 event::Cancel, event::RemoveIsland, event::RevokeToken,
                 event::Export, event::Restore, event::MirrorEnded,
                 event::ShardReported,
                 event::ServerChanged, event::MoveShards, event::Tick>;

// The answer to the caller, besides the status.
struct RunAnswer {
  v1::JoinResponse joined;                // Answers Join.
  v1::ExportCheckpointResponse exported;  // Answers Export.
  v1::RestoreRunResponse restored;        // Answers Restore, without the run.
  // Answers ShardReported: this report of changes is not taken.
  bool wants_whole_report = false;
};

}  // namespace atl::coordinator
