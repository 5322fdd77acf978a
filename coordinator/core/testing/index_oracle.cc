#include "coordinator/core/testing/index_oracle.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/run_timing.h"
#include "base/status/cut_utf8.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/index_updates.h"
#include "coordinator/core/rounds/measured_speeds.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/verdict/verdict_rule.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

SharedInfo Copy(const v1::ContributionInfo& info) {
  return std::make_shared<const v1::ContributionInfo>(info);
}

bool SameInfo(const v1::ContributionInfo& a, const v1::ContributionInfo& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

bool Belongs(const RunState& state, int32_t fragment,
             const v1::ContributionKey& key) {
  return key.fragment() == fragment && IsUndecided(state, key);
}

struct Named {
  std::set<ContributionPlace> here;  // Stored or refused.
  std::map<ContributionPlace, std::string> refused;
};

Named NamedBy(const v1::ShardReport& report, int64_t run_epoch) {
  Named named;
  for (const v1::StoredContribution& stored : report.stored()) {
    if (stored.info().key().run_epoch() != run_epoch) continue;
    named.here.insert(ToPlace(stored.info().key()));
  }
  for (const v1::RefusedContribution& refused : report.refused()) {
    if (refused.key().run_epoch() != run_epoch) continue;
    named.here.insert(ToPlace(refused.key()));
    named.refused[ToPlace(refused.key())] =
        refused.reason();
  }
  return named;
}

// True if a round may still merge it, judging by its header.
bool MayBeMerged(const RunState& state, const v1::ContributionInfo& info) {
  if (!IsUndecided(state, info.key())) return false;
  const int64_t newest =
      state.fragments()[info.key().fragment()].newest.version();
  return info.anchor_version() >= 0 && info.anchor_version() <= newest &&
         IsFreshEnough(state.spec().schedule(), info.anchor_version(), newest);
}

// Adds what the shard has now; drops what is decided or cannot be merged.
void NoteHad(const RunState& state, const v1::ShardReport* report,
             std::map<ContributionPlace, v1::ContributionInfo>& had) {
  if (report != nullptr) {
    // A report that names a key twice lies; its first header counts.
    std::set<ContributionPlace> named;
    for (const v1::StoredContribution& stored : report->stored()) {
      if (stored.info().key().run_epoch() != state.run_epoch()) continue;
      const ContributionPlace place = ToPlace(stored.info().key());
      if (named.insert(place).second) had[place] = stored.info();
    }
  }
  std::erase_if(had, [&](const auto& entry) {
    return !MayBeMerged(state, entry.second);
  });
}

std::string Describe(const SeenContributions& all) {
  std::string text;
  for (const auto& [place, seen] : all) {
    absl::StrAppend(
        &text, place.first, "/", place.second, " ", seen.key.ShortDebugString(),
        " info ",
        seen.info == nullptr ? std::string("none")
                             : seen.info->ShortDebugString(),
        " anchor ", seen.anchor_version.value_or(-1), " stored ",
        seen.stored_count, " norm^2 ", seen.norm_squared, " refused ",
        seen.refusal, " received ", seen.received, " steps ",
        seen.counted_step_count, " bound ", seen.norm_bound, "\n");
  }
  return text;
}

}  // namespace

SeenContributions CollectContributions(
    const RunState& state, const std::vector<ObservedShard>& shards,
    const std::vector<v1::ShardReport>& reports,
    const std::vector<std::map<ContributionPlace, v1::ContributionInfo>>& had,
    int32_t fragment) {
  SeenContributions all;
  const std::vector<int32_t> holders = ListShards(state, fragment);
  for (int32_t shard : holders) {
    if (shard >= shards.size() || !shards[shard].reported) continue;
    const v1::ShardReport& report = reports[shard];
    for (const v1::StoredContribution& stored : report.stored()) {
      const v1::ContributionKey& key = stored.info().key();
      if (!Belongs(state, fragment, key)) continue;
      SeenContribution& seen = all[{key.slot(), key.seq()}];
      if (seen.info == nullptr) {
        seen.key = key;
        seen.info = Copy(stored.info());
        seen.anchor_version = stored.info().anchor_version();
        if (seen.refusal.empty()) {
          seen.refusal = FindInfoFault(state, stored.info());
        }
      } else if (!SameInfo(*seen.info, stored.info())) {
        seen.refusal = "shards received different headers for its key";
      }
      seen.stored_count += 1;
      seen.norm_squared += stored.norm_squared();
    }
    for (const v1::RefusedContribution& refused : report.refused()) {
      const v1::ContributionKey& key = refused.key();
      if (!Belongs(state, fragment, key)) continue;
      SeenContribution& seen = all[{key.slot(), key.seq()}];
      seen.key = key;
      if (!seen.anchor_version.has_value() && refused.has_anchor_version()) {
        seen.anchor_version = refused.anchor_version();
      }
      seen.refusal =
          refused.reason().empty()
              ? std::string("a shard refused it")
              : std::string(CutUtf8(refused.reason(), kReasonBytesMax));
    }
    // Lost contributions must end too.
    if (static_cast<size_t>(shard) >= had.size()) continue;
    for (const auto& [place, info] : had[shard]) {
      if (!Belongs(state, fragment, info.key())) continue;
      SeenContribution& seen = all[{info.key().slot(), info.key().seq()}];
      if (seen.info != nullptr || !seen.refusal.empty()) continue;
      seen.key = info.key();
      seen.info = Copy(info);
      seen.anchor_version = info.anchor_version();
      seen.refusal = FindInfoFault(state, info);
    }
  }
  const bool is_judged =
      MakeVerdictRule(state.spec().outer().merge()) != nullptr;
  for (auto& [place, seen] : all) {
    if (is_judged && seen.refusal.empty() &&
        !(seen.norm_squared < kVerdictNormSquaredMax)) {
      seen.refusal = "its norm is not below 2^26, the limit of the merge rule";
    }
    if (seen.refusal.empty() && seen.stored_count == holders.size()) {
      JudgeNorm(state, fragment, seen);
    }
    seen.received = seen.stored_count == holders.size() && seen.refusal.empty();
  }
  return all;
}

namespace {

// Holds the counters and the ended contributions of `shard` against `report`.
void CheckReported(const RunState& state, const ObservedShard& shard,
                   const v1::ShardReport& report) {
  std::map<ReportedKey, bool> ended;  // True: refused.
  std::set<ReportedKey> all;
  const auto add = [&](const v1::ContributionKey& key, bool is_refused) {
    all.insert(ToReportedKey(key));
    const bool is_other =
        key.run_epoch() != state.run_epoch() || key.fragment() < 0 ||
        key.fragment() >= state.fragments().size() || key.slot() < 0 ||
        key.seq() < 1 || key.seq() > kSeqMax;
    // A sealed one is in the index until its round ends.
    if (!is_other &&
        (!state.outcomes().Contains(key) ||
         FindSealed(state.fragments()[key.fragment()],
                    {key.slot(), key.seq()}) != nullptr)) {
      return;
    }
    ended[ToReportedKey(key)] |= is_refused;
  };
  for (const v1::StoredContribution& stored : report.stored()) {
    add(stored.info().key(), false);
  }
  for (const v1::RefusedContribution& refused : report.refused()) {
    add(refused.key(), true);
  }
  EXPECT_EQ(shard.contribution_count, all.size());
  EXPECT_EQ(shard.ended, ended);
}

}  // namespace

void IndexOracle::Check(const RunMachine& machine,
                        const std::vector<v1::ShardReport>& reports) {
  const RunState& state = machine.state();
  const Observations& observed = machine.observed();
  if (run_epoch_ != state.run_epoch()) had_.clear();
  run_epoch_ = state.run_epoch();
  had_.resize(observed.shards.size());
  const bool under_way = state.started() && !state.ended();
  std::map<ContributionPlace, std::set<int32_t>> lost;
  for (size_t s = 0; under_way && s < observed.shards.size(); ++s) {
    const auto shard = static_cast<int32_t>(s);
    const ObservedShard& seen = observed.shards[s];
    const bool heard = IsHeard(seen);
    const Named named =
        heard ? NamedBy(reports[s], state.run_epoch()) : Named();
    for (const FragmentState& fragment : state.fragments()) {
      const int32_t f = fragment.newest.fragment();
      if (fragment.phase != RoundPhase::kSealed ||
          state.layout()
              .ShardBlocks(f, shard, static_cast<int32_t>(had_.size()))
              .empty()) {
        continue;
      }
      const v1::Seal& seal = fragment.sealed.seal();
      const bool prepared =
          FindOfSeal(seen, seen.report.prepared(), seal) != nullptr;
      for (const storage::v1::SealedInfo& sealed : fragment.sealed.infos()) {
        const v1::ContributionKey& key = sealed.info().key();
        had_[s][ToPlace(key)] = sealed.info();
        if (heard && !prepared &&
            (!named.here.contains(ToPlace(key)) ||
             named.refused.contains(ToPlace(key)))) {
          lost[ToPlace(key)].insert(shard);
        }
      }
    }
    NoteHad(state, seen.reported ? &reports[s] : nullptr, had_[s]);
    for (const auto& [place, info] : had_[s]) {
      if (heard &&
          state.fragments()[std::get<0>(place)].phase != RoundPhase::kSealed &&
          !named.here.contains(place)) {
        lost[place].insert(shard);
      }
    }
  }
  if (under_way) {
    std::map<ContributionPlace, std::set<int32_t>> recalled;
    for (const auto& [place, recall] : observed.recalls) {
      EXPECT_EQ(ToPlace(recall.key), place);
      recalled[place] = recall.shards;
    }
    EXPECT_EQ(recalled, lost);
    for (const ContributionPlace& place : observed.index.changed) {
      ADD_FAILURE() << "left for later: " << std::get<0>(place) << "/"
                    << std::get<1>(place) << "/" << std::get<2>(place);
    }
  }
  for (size_t s = 0; s < observed.shards.size(); ++s) {
    CheckReported(state, observed.shards[s],
                  observed.shards[s].reported ? reports[s] : v1::ShardReport());
  }
  for (const FragmentState& fragment : state.fragments()) {
    const int32_t f = fragment.newest.fragment();
    EXPECT_EQ(Describe(observed.index.Seen(f)),
              Describe(CollectContributions(state, observed.shards, reports,
                                            had_, f)))
        << "fragment " << f;
  }
}

namespace {

// Holds `standing` against a look at all contributions.
void CheckStanding(const v1::OpenRound& open, const SeenContributions& all,
                   const RoundStanding& standing) {
  EXPECT_TRUE(standing.changed.empty());
  ASSERT_EQ(standing.slots.size(), open.slots_size());
  for (int i = 0; i < open.slots_size(); ++i) {
    int64_t received_seq = 0;
    int64_t refused_seq = 0;
    for (const auto& [place, seen] : all) {
      if (place.first != open.slots(i).slot() ||
          (seen.anchor_version.has_value() &&
           *seen.anchor_version != open.version())) {
        continue;
      }
      if (seen.received) received_seq = place.second;
      if (!seen.refusal.empty()) refused_seq = place.second;
    }
    EXPECT_EQ(standing.slots[i].received_seq, received_seq);
    EXPECT_EQ(standing.slots[i].refused_seq, refused_seq);
  }
}

}  // namespace

void IndexOracle::CheckJudged(const RunMachine& machine, absl::Time now) const {
  const RunState& state = machine.state();
  Observations all = machine.observed();
  for (int32_t f = 0; f < state.fragments().size(); ++f) {
    FragmentContributions& fragment = all.index.fragments[f];
    EXPECT_TRUE(fragment.unsettled.empty() && fragment.unmeasured.empty())
        << "fragment " << f;
    if (state.ended()) continue;
    for (const auto& [place, seen] : fragment.seen) {
      fragment.unsettled.push_back(place);
      fragment.unmeasured.push_back(place);
    }
    EXPECT_FALSE(NoteReceived(state, f, now, all).has_measured)
        << "fragment " << f;
    if (IsAsync(state.spec().schedule())) continue;
    const FragmentState& at = state.fragments()[f];
    if (at.phase == RoundPhase::kOpen &&
        state.state() == v1::RUN_STATE_ACTIVE) {
      CheckStanding(at.open, fragment.seen, all.timers[f].standing);
    }
    for (const auto& outcome : SettleOld(state, all, f)) {
      ADD_FAILURE() << "settled late: " << outcome.ShortDebugString();
    }
  }
}

}  // namespace atl::coordinator
