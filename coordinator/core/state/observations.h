// The state of a run's machine that is not durable: reports, leases, timers.
// After a restart, reports and time rebuild all of it.
//
// Plain values. Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/layout/trainer_metrics.h"
#include "base/time/token_bucket.h"
#include "coordinator/core/state/contribution_index.h"
#include "coordinator/core/state/phase_table.h"
#include "coordinator/core/state/slot_timers.h"

namespace atl::coordinator {

// How many awaited islands a waiting round names.
inline constexpr size_t kAwaitedNamedMax = 5;

struct ServerInfo {
  std::string server_id;
  std::string address;
  int64_t incarnation = 0;
  std::string program_version;
  bool alive = false;  // Its lease has not ended.
  std::string directory_id = "";  // Empty from an older program.
  uint64_t features = 0;          // As it sent them.
  bool directory_lost = false;    // As ServerSet.directory_lost.
};

class ServerDirectory {
 public:
  virtual ~ServerDirectory() = default;
  // nullptr if the server never registered.
  virtual const ServerInfo* FindServer(const std::string& server_id) const = 0;
  // Ids of the servers whose leases have not ended, by shard count, then by id.
  virtual std::vector<std::string> AliveServers() const = 0;
  // True if the server may have files of a deleted run with this id.
  virtual bool HasDeletedRun(const std::string& server_id,
                             const std::string& run_id) const {
    return false;
  }
  // True if checkpoints can be copied to a mirror.
  virtual bool HasMirror() const { return false; }
  // Why a server with this id was refused; "" asks for any server. Null if none
  // was, if a fit one registered since, or if a fit one is alive.
  virtual const v1::Fault* FindRefusal(const std::string& server_id) const {
    return nullptr;
  }
};

// The newest report of a shard by its server's newest incarnation.
struct ObservedShard {
  bool reported = false;
  // Without its contributions: `ended` and the index have them.
  v1::ShardReport report;
  // Its report_seq; 0: the next report must be whole.
  int64_t report_seq = 0;
  // Bytes of the reports of changes since the newest whole one.
  size_t changes_bytes = 0;
  int64_t contribution_count = 0;  // Contributions that the shard reports.
  // Those for which the index has no place, as they have ended or are of another
  // epoch. True: the shard refuses it.
  std::map<ReportedKey, bool> ended;
  // The largest persisted_commit_seq of its reports in this run_epoch, over all
  // incarnations of its server.
  int64_t acknowledged_commit_seq = 0;
};

// A contribution that shards had and lost before its COMMIT.
struct Recall {
  v1::ContributionKey key;
  std::set<int32_t> shards;                   // Shards that lost it.
  absl::Time since = absl::InfiniteFuture();  // When the first loss was seen.
};

// A member's state that is not in its record.
struct ObservedMember {
  absl::Time last_heard = absl::InfinitePast();
  std::optional<v1::ReportProgressRequest> progress;
  // As its newest heartbeat has them. No seq above the newest outcome's counts.
  int64_t acknowledged_seq = 0;
  v1::IslandPhase phase = v1::ISLAND_PHASE_UNSPECIFIED;
  std::string phase_reason;
  // It is present, but has had no plan stream for kStreamGrace, or since the
  // start for kReconnectGrace: rounds do not wait for it. Only in elastic runs
  // that are not async.
  bool away = false;
  // Sum of losses since its last contribution was due, for the round's history.
  double loss_sum = 0;
  int64_t loss_step_count = 0;
  WeightedMeans metrics;  // Its trainer's metrics over the same steps.
  PhaseTable phases;
  // Inner steps a second of its newest plans, newest last
  // (rounds/measured_speeds.h), and when the newest of these plans was made.
  std::deque<double> speeds;
  absl::Time speed_plan_time = absl::InfinitePast();
  double tokens_a_step = 0;  // By its newest contribution; 0: none came.
  // Since its newest merged contribution: rounds that counted on it, for how
  // long, and since when one does now; InfiniteFuture: none (data_lease.h).
  int64_t idle_round_count = 0;
  absl::Duration idle_duration;
  absl::Time idle_since = absl::InfiniteFuture();
  // A join sends a plan to every other island. An island that is restarted in
  // a loop of two seconds still gets in. Ten at once.
  TokenBucket joins = {0.5, absl::Seconds(18)};
  // ReportReady, ReportProgress and heartbeats with progress, 64 at once. An
  // island reports once a second.
  TokenBucket reports = {8, absl::Seconds(63) / 8};
  // Changes of its index_digest. Each can send plans to others. Five at once.
  TokenBucket sample_changes = {0.1, absl::Seconds(40)};

  // Losses and metrics begin anew.
  void ClearSteps() {
    loss_sum = 0;
    loss_step_count = 0;
    metrics.Clear();
  }
};

// A slot's plan for its next contribution to a fragment.
struct AskedSlot {
  absl::Time plan_time;      // When the plan was made,
  int64_t plan_version = 0;  // and for which version.
  int64_t step_count = 0;
  // The seq of that contribution; 0 until all shards have received it.
  int64_t seq = 0;
};

// The plans of a fragment's round, over all its attempts; async: those that
// stand. Plans from before the coordinator's start are not there.
struct AskedSlots {
  int64_t version = -1;
  std::map<int32_t, AskedSlot> slots;
};

// The contributions for which the open round of a fragment waits, as DecideSeal
// last found them.
struct RoundWait {
  int received_count = 0;
  int awaited_count = 0;
  std::vector<int32_t> awaited;      // Slots; at most kAwaitedNamedMax.
  // By slot: since when it is received, or was before a loss; InfiniteFuture: it
  // never was. May end before the last slots.
  std::vector<absl::Time> received_times;
  // When the newest of them was first received, or when the run was resumed
  // since; InfinitePast if neither happened.
  absl::Time received_time = absl::InfinitePast();
};

// The newest contributions of an open round by slot, as DecideSeal last looked.
struct RoundStanding {
  struct Slot {
    int64_t received_seq = 0;  // Its newest received contribution; 0: none.
    int64_t refused_seq = 0;
  };

  int64_t version = -1;
  int32_t attempt = -1;
  std::vector<Slot> slots;  // In the order of the plans.
  // Slots of contributions that were judged or forgotten since. If they are more
  // than the plans, all slots must be looked at.
  std::vector<int32_t> changed;

  void Note(int32_t slot) {
    if (changed.size() <= slots.size()) changed.push_back(slot);
  }
};

struct RoundTimers {
  absl::Time deadline_start = absl::InfinitePast();
  // When the quorum counts as reached (rounds/quorum.h).
  absl::Time quorum_time = absl::InfiniteFuture();
  RoundWait wait;
  RoundStanding standing;
};

// The last decision on a fragment's contributions and round, and whether it must
// be made again.
struct FragmentDecision {
  // Something that the decision reads has changed.
  bool is_due = true;
  // The round has as many contributions as its quorum, so that the speeds of
  // islands tell when they count.
  bool reads_speeds = true;
  std::string waits_for;  // Why the last decision made no record.
};

// Present islands by the digest of the samples that they read
// (ReportProgressRequest.index_digest), each digest's in the order of arrival.
//
// The first reader of a digest names the second one, and all others name the
// first. An island that changes its digest again and again arrives last, so it
// changes the warning of at most two others.
class SampleReaders {
 public:
  // Empty: the island of `slot` tells no digest, or is not present.
  void Set(int32_t slot, const std::string& digest) {
    if (Has(slot, digest)) return;
    if (const auto known = readers_.find(slot); known != readers_.end()) {
      const auto same = slots_.find(known->second.digest);
      same->second.erase(known->second.number);
      if (same->second.empty()) slots_.erase(same);
      readers_.erase(known);
    }
    if (digest.empty()) return;
    readers_[slot] = {digest, ++newest_number_};
    slots_[digest][newest_number_] = slot;
  }

  bool Has(int32_t slot, const std::string& digest) const {
    const auto known = readers_.find(slot);
    return known == readers_.end() ? digest.empty()
                                   : known->second.digest == digest;
  }

  // The other slot with the digest of `slot` that it names; nullopt: none.
  std::optional<int32_t> FindOther(int32_t slot) const {
    const std::map<int64_t, int32_t>* same = FindSame(slot);
    if (same == nullptr) return std::nullopt;
    const auto first = same->begin();
    if (first->second != slot) return first->second;
    const auto second = std::next(first);
    return second == same->end() ? std::nullopt
                                 : std::optional(second->second);
  }

  // The slots whose FindOther is `slot`.
  std::set<int32_t> ListNaming(int32_t slot) const {
    std::set<int32_t> naming;
    const std::map<int64_t, int32_t>* same = FindSame(slot);
    if (same == nullptr) return naming;
    const int32_t first = same->begin()->second;
    if (first == slot) {
      for (const auto& [number, other] : *same) naming.insert(other);
      naming.erase(slot);
    } else if (FindOther(first) == slot) {
      naming.insert(first);
    }
    return naming;
  }

 private:
  struct Reader {
    std::string digest;
    int64_t number = 0;  // In the order of arrival.
  };

  // By number; nullptr: the island tells no digest.
  const std::map<int64_t, int32_t>* FindSame(int32_t slot) const {
    const auto known = readers_.find(slot);
    return known == readers_.end() ? nullptr : &slots_.at(known->second.digest);
  }

  int64_t newest_number_ = 0;
  std::map<int32_t, Reader> readers_;  // By slot.
  // By digest and number; none is empty.
  std::map<std::string, std::map<int64_t, int32_t>> slots_;
};

struct Observations {
  std::vector<ObservedShard> shards;           // By shard, once placed.
  std::vector<ObservedMember> members;         // By slot.
  SlotTimers leases;  // When they end: of present members, and only these.
  SlotTimers aways;   // When members count as away.
  std::vector<RoundTimers> timers;             // By fragment.
  std::vector<AskedSlots> asked;               // By fragment.
  std::vector<FragmentDecision> decisions;     // By fragment.
  ContributionIndex index;
  bool has_refused = true;  // A member may have had a refused_count at the last outcome.
  std::map<std::string, absl::Time> pin_ends;  // Leases, by pin_id.
  std::map<ContributionPlace, Recall> recalls;
  SampleReaders sample_readers;
  std::string mirror_error;  // RunMirror.error.
  // The run_epoch of the owner of the run's checkpoints in the mirror, if it is
  // another one; 0: none is known.
  int64_t mirror_owner_epoch = 0;
  // Calls of members above their rates, since the coordinator's start.
  int64_t refused_call_count = 0;

  // Everything must be decided again.
  void SetAllDue() {
    for (FragmentDecision& decision : decisions) decision.is_due = true;
  }
  bool IsAnyDue() const {
    return std::any_of(
        decisions.begin(), decisions.end(),
        [](const FragmentDecision& decision) { return decision.is_due; });
  }
  void SetDue(int32_t fragment) {
    if (fragment < 0 || static_cast<size_t>(fragment) >= decisions.size()) {
      return;
    }
    decisions[static_cast<size_t>(fragment)].is_due = true;
  }
};

}  // namespace atl::coordinator
