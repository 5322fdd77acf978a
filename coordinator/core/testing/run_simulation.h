// A run's machine with shards and islands around it, for tests: each step of
// anyone is one call, so that a test is a trace that reads from top to bottom,
// or a random order of such steps.
//
// Everything that the machine records is kept as its log. The simulation
// checks the log as it grows (CheckLog); Restart replays it into a new machine,
// as after a crash of the coordinator.

#ifndef COORDINATOR_CORE_TESTING_RUN_SIMULATION_H_
#define COORDINATOR_CORE_TESTING_RUN_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/run_machine.h"

namespace atl::coordinator {

// A spec that passes validation: strict, two islands, two servers, three
// rounds of four steps, and as many fragments as asked for.
v1::RunSpec SimpleSpec(int fragment_count = 1);
// The same, elastic: quorum 1, 1 s grace.
v1::RunSpec ElasticSpec(int fragment_count = 1);
// The same, async: max_staleness 3, Delayed Nesterov over 2, eight versions.
v1::RunSpec AsyncSpec(int fragment_count = 1);

class RunSimulation : public ServerDirectory {
 public:
  explicit RunSimulation(const v1::RunSpec& spec);

  // --- Steps -----------------------------------------------------------------

  // Registers every server and lets every shard have version 0.
  void StartServers();
  // Joins; the status of the call.
  absl::Status Join(const std::string& island_id);
  absl::Status Ready(const std::string& island_id);
  absl::Status Leave(const std::string& island_id);
  // An operator puts it out, or lets it in again.
  absl::Status Remove(const std::string& island_id, bool readmit = false);
  absl::Status Heartbeat(const std::string& island_id);
  // Reports `loss` for the parameters of `version`.
  absl::Status Evaluate(const std::string& island_id, int64_t version,
                        double loss);
  // Pushes `island_id`'s contribution to the open round of `fragment` to one
  // shard, which reports it. Makes it first if there is none for the round.
  // False if the round is not open for the island.
  bool Push(const std::string& island_id, int32_t fragment, int32_t shard);
  // Makes the contribution without pushing it; false as Push.
  bool Train(const std::string& island_id, int32_t fragment);
  // Pushes the island's newest contribution to all shards, however old.
  void PushLate(const std::string& island_id, int32_t fragment);
  // To all shards, all fragments.
  void PushAll(const std::string& island_id);
  // The shard refuses the island's contribution to the open round.
  void RefusePush(const std::string& island_id, int32_t fragment,
                  int32_t shard);
  // The shard refuses the island's newest contribution, however old. False if
  // there is none that it could, or if it was decided.
  bool RefuseLate(const std::string& island_id, int32_t fragment,
                  int32_t shard);
  // The shard takes its plan in, merges what is sealed, applies what is
  // committed, persists it if `persist`, and reports. Contributions are
  // orthogonal, and that of slot s has the squared norm s + 1 on each shard.
  void FollowPlan(int32_t shard, bool persist = true);
  void FollowPlans();
  // The shard loses the island's newest contribution, if it has it and it is
  // not decided, and what it had merged with it unless `keeps_merges`. False if
  // there is none.
  bool Lose(const std::string& island_id, int32_t fragment, int32_t shard,
            bool keeps_merges = false);
  // The island pushes what its plan says is needed again. False if nothing is.
  bool PushAgain(const std::string& island_id);
  // What the island's plan says is needed again.
  std::vector<v1::ContributionKey> NeedsRepush(const std::string& island_id);
  // The shard stops with `fault`; empty: it has none any more. It reports.
  void SetFault(int32_t shard, const std::string& fault);
  // The same of what it cannot do now.
  void SetBlockedReason(int32_t shard, const std::string& blocked_reason);
  // All islands push, all shards follow, until nothing changes.
  void Settle();
  // Time passes; islands that are not `silent` heartbeat.
  void Pass(absl::Duration duration, const std::set<std::string>& silent = {});
  // The coordinator's, from a snapshot of the log's first `snapshot_revision`
  // records and the rest; 0: from the whole log.
  void Restart(int64_t snapshot_revision = 0);
  // What the machine was asked without a step of this class is durable.
  void Flush() { Collect(); }
  // The coordinator crashes before the next records that it makes are durable:
  // they are gone, and nobody was told.
  void LoseNextBatch() { loses_next_batch_ = true; }
  void RestartServer(int32_t shard);

  // --- To look at ------------------------------------------------------------

  RunMachine& machine() { return *machine_; }
  const RunState& state() const { return machine_->state(); }
  absl::Time now() const { return now_; }
  const std::vector<storage::v1::Record>& log() const { return log_; }
  int32_t shard_count() const { return static_cast<int32_t>(shards_.size()); }
  IslandCredentials Credentials(const std::string& island_id) const;
  const FragmentState& fragment(int32_t f) const {
    return state().fragments()[f];
  }
  // Slots that the open round of fragment `f` expects.
  std::vector<int32_t> Expected(int32_t f = 0) const;
  // How the newest contribution of an island to `fragment` ended.
  v1::Outcome FindOutcome(const std::string& island_id, int32_t fragment = 0);

  // Makes the merges of the next attempts give values that are not finite.
  bool finite = true;
  // What every shard's first report says of a fault.
  std::string fault_at_start;
  // Contributions made from now on say how many tokens are behind them.
  bool claims_tokens = true;
  // Windows that contributions made from now on claim beyond what was asked.
  int64_t claims_windows_more = 0;
  // Gram matrices overflow.
  bool overflow = false;
  // Shards merge, but take no commit in.
  bool stalled = false;
  // What a report says instead, if it is set: then shards may be sent what an
  // honest one would not.
  std::function<void(v1::ShardReport&)> alter_report;

  // Fails the test if the log breaks an invariant: commit_seq dense, each
  // version of a fragment committed once, exactly the sealed set merged, each
  // contribution decided at most once, no pin moved to another cut, weights
  // that sum to 1, a strict round
  // without an island that was there and not refused in it, no OPEN and no
  // SEAL while not active, and the replay of every prefix that was the state
  // after a step gives that state again.
  void CheckLog();
  // Besides: every contribution that a shard ever stored has ended.
  void CheckAllDecided();

  // ServerDirectory:
  const ServerInfo* FindServer(const std::string& server_id) const override;
  std::vector<std::string> AliveServers() const override;

 private:
  using Key = std::tuple<int32_t, int32_t, int64_t>;  // Fragment, slot, seq.
  struct Shard {
    std::map<Key, v1::StoredContribution> stored;
    std::map<Key, int64_t> refused;  // The anchor.
    std::map<std::tuple<int32_t, int64_t, int64_t>, bool> prepared;
    std::set<Key> lost;
    std::string fault;
    std::string blocked_reason;
    std::vector<v1::Seal> measured;  // Wait for their verdict.
    int64_t applied = 0;
    int64_t persisted = 0;
  };
  struct Island {
    int32_t slot = 0;
    int64_t epoch = 0;
    int64_t next_seq = 1;
    std::string secret;
    std::map<int32_t, v1::ContributionInfo> newest;  // By fragment.
  };

  // False if what the event led to was lost: LoseNextBatch.
  bool Collect();
  // A new life on the log, of which a snapshot stands for the first so many
  // records.
  void Replay(int64_t snapshot_revision);
  void Report(int32_t shard);
  void Refuse(const v1::ContributionInfo& info, int32_t shard);
  // An island that is there, and was not refused, is in the strict round that
  // expects it.
  void CheckNobodyIsLeftOut(const RunState& state, const v1::Seal& seal) const;
  const v1::ContributionInfo* MakeContribution(const std::string& island_id,
                                               int32_t fragment);

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::map<std::string, ServerInfo> servers_;
  std::unique_ptr<RunMachine> machine_;
  std::vector<Shard> shards_;
  std::map<std::string, Island> islands_;
  std::vector<storage::v1::Record> log_;
  bool loses_next_batch_ = false;
  std::map<int64_t, std::string> snapshots_;  // Of the state, by revision.
  std::set<Key> ever_stored_;
  std::set<Key> forgotten_;  // Lost everywhere before a restart.
  // Fragment, slot, anchor of what was ever refused, or may be.
  std::set<Key> refused_anchors_;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_TESTING_RUN_SIMULATION_H_
