// Simulates shards and islands around a run's machine, for tests. Each step is
// one call, so a test reads as a trace, or takes steps in a random order.
//
// The machine's records form a log. CheckLog checks it. Restart replays it into
// a new machine, as after a crash of the coordinator.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/testing/index_oracle.h"

namespace atl::coordinator {

// A valid spec: strict, two islands, two servers, three rounds of four steps.
v1::RunSpec SimpleSpec(int fragment_count = 1);
// The same, elastic: quorum 1, 1 s grace.
v1::RunSpec ElasticSpec(int fragment_count = 1);
// The same, async: max_staleness 3, Delayed Nesterov over 2, eight versions.
v1::RunSpec AsyncSpec(int fragment_count = 1);

class RunSimulation : public ServerDirectory {
 public:
  explicit RunSimulation(const v1::RunSpec& spec,
                         int64_t contributions_a_step = kContributionsAStep);

  // --- Steps -----------------------------------------------------------------

  // Registers every server and gives every shard version 0.
  void StartServers();
  // With a token, the island's weight has the share that share_of_token says.
  absl::Status Join(const std::string& island_id,
                    const std::string& token_id = "");
  absl::Status Ready(const std::string& island_id);
  absl::Status Leave(const std::string& island_id);
  // An operator removes or readmits the island.
  absl::Status Remove(const std::string& island_id, bool readmit = false);
  // An operator revokes the island.
  absl::Status Revoke(const std::string& island_id);
  // An operator restores the run. Shards go back once they follow their plan,
  // and islands once they are ready.
  absl::StatusOr<v1::RestoreRunResponse> RestoreRun(const std::string& from,
                                                    bool dry_run = false);
  absl::Status Heartbeat(const std::string& island_id);
  absl::StatusOr<RunAnswer> Heartbeat(const v1::HeartbeatRequest& request);
  // The island's only plan stream begins or ends.
  void SetStream(const std::string& island_id, bool is_open);
  // Reports `loss` for the parameters of `version`, or that it has none.
  absl::Status Evaluate(const std::string& island_id, int64_t version,
                        double loss, const std::string& failure = "");
  // Pushes the island's contribution to the open round of `fragment` to one
  // shard, which reports it. Trains first if there is no contribution for the
  // round. False if the round is not open for the island.
  bool Push(const std::string& island_id, int32_t fragment, int32_t shard);
  // Makes the contribution without pushing it; false as for Push.
  bool Train(const std::string& island_id, int32_t fragment);
  // Pushes the island's newest contribution to all shards, however old.
  void PushLate(const std::string& island_id, int32_t fragment);
  void PushAll(const std::string& island_id);
  void RefusePush(const std::string& island_id, int32_t fragment,
                  int32_t shard);
  // The shard refuses the island's newest contribution, however old. False if
  // there is none, or if it is decided.
  bool RefuseLate(const std::string& island_id, int32_t fragment,
                  int32_t shard);
  // The shard follows its plan: it merges sealed rounds, applies commits,
  // persists them if `persist`, and reports. Contributions are orthogonal; that
  // of slot s has the squared norm s + 1 on each shard.
  void FollowPlan(int32_t shard, bool persist = true);
  void FollowPlans();
  // The shard loses the island's newest undecided contribution, and what was
  // merged with it unless `keeps_merges`. False if the shard has none.
  bool Lose(const std::string& island_id, int32_t fragment, int32_t shard,
            bool keeps_merges = false);
  // The island pushes again what its plan names. False if that is nothing.
  bool PushAgain(const std::string& island_id);
  // The keys that the island's plan asks for again.
  std::vector<v1::ContributionKey> NeedsRepush(const std::string& island_id);
  // Sets the shard's fault (empty: none). The shard reports.
  void SetFault(int32_t shard, const std::string& fault);
  // The same for `blocked_reason`.
  void SetBlockedReason(int32_t shard, const std::string& blocked_reason);
  // Lets all islands push and all shards follow until nothing changes.
  void Settle();
  // Lets time pass. Islands that are not `silent` send heartbeats.
  void Pass(absl::Duration duration, const std::set<std::string>& silent = {});
  // Restarts the coordinator from a snapshot of the log's first
  // `snapshot_revision` records and the rest of the log; 0: without one.
  void Restart(int64_t snapshot_revision = 0);
  // Makes durable what direct calls to machine() have recorded.
  void Flush() { Collect(); }
  // The coordinator will crash before its next records are durable: they are
  // lost, and nobody was told.
  void LoseNextBatch() { loses_next_batch_ = true; }
  void RestartServer(int32_t shard);

  // --- State -----------------------------------------------------------------

  RunMachine& machine() { return *machine_; }
  const RunState& state() const { return machine_->state(); }
  absl::Time now() const { return now_; }
  const std::vector<storage::v1::Record>& log() const { return log_; }
  // Reports of changes that the machine has taken, and that it has not.
  int changes_count() const { return changes_count_; }
  int refused_changes_count() const { return refused_changes_count_; }
  int32_t shard_count() const { return static_cast<int32_t>(shards_.size()); }
  IslandCredentials Credentials(const std::string& island_id) const;
  const FragmentState& fragment(int32_t f) const {
    return state().fragments()[f];
  }
  std::vector<int32_t> Expected(int32_t f = 0) const;
  v1::Outcome FindOutcome(const std::string& island_id, int32_t fragment = 0);

  // Of IslandCapabilities of islands that join.
  std::string frozen_digest;
  uint64_t features = 0;
  // False: the next merges give values that are not finite.
  bool finite = true;
  // Norm of new pushes on each shard, squared.
  double push_norm_squared = 2;
  // Norm of merges on each shard, squared.
  double merge_norm_squared = 0;
  // A merge of a contribution whose squared norm on the shard is above this is
  // not finite.
  double merge_norm_squared_max = std::numeric_limits<double>::infinity();
  // Why shards refuse what Refuse... names.
  std::string refusal = "a value is not finite";
  // Norm of version 0 on each shard, squared; negative: not reported.
  double version0_norm_squared = 50;
  // False: shards make no checkpoint durable.
  bool makes_durable = true;
  // True: shards copy their checkpoints to a mirror.
  bool makes_copies = false;
  // The fault in every shard's first report.
  std::string fault_at_start;
  // False: new contributions claim no tokens.
  bool claims_tokens = true;
  // Steps that new contributions claim; 0: the planned ones.
  int64_t claimed_step_count = 0;
  // Training losses that new contributions of these islands have.
  std::map<std::string, double> training_losses;
  // Windows that new contributions claim beyond the plan.
  int64_t claims_windows_more = 0;
  // Largest share of the weight that the islands of a token have together.
  double share_of_token = 0.05;
  // True: Gram matrices overflow.
  bool overflow = false;
  // True: after each step all that is kept of reports is held against them, and
  // deciding everything again gives no record (a large run would take long).
  bool checks_index = true;
  int cut_count = 0;  // Steps that have left decisions to the next.
  // True: shards merge, but apply no commit.
  bool stalled = false;
  // Tells for each report whether the server sends it whole, although it could
  // send the changes, and whether the answer to the report is lost. Null: neither.
  std::function<bool()> sends_whole;
  std::function<bool()> loses_answer;
  // If set, alters each report. Shards may then get plans of dishonest ones.
  std::function<void(v1::ShardReport&)> alter_report;

  // Fails the test if the log breaks an invariant: commit_seq is dense; each
  // version of a fragment is committed once; a commit merges exactly the sealed
  // set; each contribution ends at most once; no pin moves to another cut;
  // weights sum to 1, unless all are limited; a strict round includes every
  // present island that was not refused; OPEN and SEAL only while active; a
  // restore gives the state of its cut, and no key is used twice; the
  // replay of a prefix gives the state after that step.
  void CheckLog();
  // Also: every contribution that a shard ever stored has ended.
  void CheckAllDecided();

  // ServerDirectory:
  const ServerInfo* FindServer(const std::string& server_id) const override;
  std::vector<std::string> AliveServers() const override;

 private:
  using Key = std::tuple<int32_t, int32_t, int64_t>;  // Fragment, slot, seq.
  struct Shard {
    std::map<Key, v1::StoredContribution> stored;
    std::map<Key, int64_t> refused;  // Their anchor versions.
    std::map<std::tuple<int32_t, int64_t, int64_t>, bool> prepared;
    std::set<Key> lost;
    std::string fault;
    std::string blocked_reason;
    std::vector<v1::Seal> measured;  // Without a verdict yet.
    int64_t applied = 0;
    int64_t persisted = 0;
    int64_t run_epoch = 1;
    std::vector<v1::ShardCheckpoint> checkpoints;
    // Of its server's process: the newest report_seq, and the newest one with an
    // answer, 0 without one, and what that report said, whole.
    int64_t report_seq = 0;
    int64_t answered_seq = 0;
    v1::ShardReport answered;
  };
  struct Island {
    int32_t slot = 0;
    int64_t epoch = 0;
    int64_t next_seq = 1;
    std::string secret;
    std::map<int32_t, v1::ContributionInfo> newest;  // By fragment.
  };

  // Everything that the newest events lead to is decided.
  void CheckDecisions();
  // Returns false if the new records were lost (LoseNextBatch).
  bool Collect();
  // The timers that the machine keeps are those that a scan of everything finds.
  void CheckTimers() const;
  // The state is as after its newest record.
  void CheckUnchanged() const;
  // As Restart, for the machine alone.
  void Replay(int64_t snapshot_revision);
  std::unique_ptr<RunMachine> MakeMachine() const;
  void Report(int32_t shard);
  // The machine gets `report`, whole or its changes since the newest answered
  // one. False if it wants a whole one.
  bool Send(int32_t shard, const v1::ShardReport& report, bool is_whole);
  // The shard goes back to the cut of a restore.
  void GoBack(const v1::ServerRunPlan& plan, Shard& shard);
  // If no shard has it and the coordinator has not heard of it.
  void NoteIfForgotten(const Key& key);
  void Refuse(const v1::ContributionInfo& info, int32_t shard);
  // A strict SEAL includes every expected island that is present and not
  // refused.
  void CheckNobodyIsLeftOut(const RunState& state, const v1::Seal& seal) const;
  const v1::ContributionInfo* MakeContribution(const std::string& island_id,
                                               int32_t fragment);

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  absl::Time tick_time_ = now_;  // Of the newest Tick, or the life's begin.
  std::map<std::string, ServerInfo> servers_;
  const int64_t contributions_a_step_;
  std::unique_ptr<RunMachine> machine_;
  std::vector<Shard> shards_;
  std::map<std::string, Island> islands_;
  std::vector<storage::v1::Record> log_;
  IndexOracle oracle_;
  // By shard: what the newest report that the machine has taken says, whole.
  std::vector<v1::ShardReport> taken_;
  bool loses_next_batch_ = false;
  int changes_count_ = 0;
  int refused_changes_count_ = 0;
  std::map<int64_t, std::string> snapshots_;  // Of the state, by revision.
  std::set<Key> ever_stored_;
  // Lost by every shard before a restart, or before a report after one.
  std::set<Key> forgotten_;
  std::set<Key> reported_;  // By any shard, since the last restart.
  // Fragment, slot, anchor of contributions that were, or may be, refused.
  std::set<Key> refused_anchors_;
};

}  // namespace atl::coordinator
