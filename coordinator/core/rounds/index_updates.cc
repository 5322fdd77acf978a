#include "coordinator/core/rounds/index_updates.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/layout/run_length.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/measured_speeds.h"

namespace atl::coordinator {
namespace {

// Limit of ObservedShard::changes_bytes. 10 bytes of a message may take 1 KB.
constexpr size_t kChangesBytesMax = 16 << 20;

const v1::ContributionKey& KeyOf(const v1::ContributionKey& key) { return key; }
const v1::ContributionKey& KeyOf(const v1::StoredContribution& stored) {
  return stored.info().key();
}
const v1::ContributionKey& KeyOf(const v1::RefusedContribution& refused) {
  return refused.key();
}

bool IsSame(const v1::RefusedContribution& a,
            const v1::RefusedContribution& b) {
  return a.reason() == b.reason() &&
         a.has_anchor_version() == b.has_anchor_version() &&
         a.anchor_version() == b.anchor_version();
}
bool IsSame(const v1::PreparedRound& a, const v1::PreparedRound& b) {
  return a.fragment() == b.fragment() && a.version() == b.version() &&
         a.attempt() == b.attempt() &&
         a.digest().high() == b.digest().high() &&
         a.digest().low() == b.digest().low() && a.finite() == b.finite() &&
         std::bit_cast<uint64_t>(a.norm_squared()) ==
             std::bit_cast<uint64_t>(b.norm_squared());
}
bool IsSame(const v1::RoundStatistics& a, const v1::RoundStatistics& b) {
  return a.fragment() == b.fragment() && a.version() == b.version() &&
         a.attempt() == b.attempt() &&
         std::equal(a.grams().begin(), a.grams().end(), b.grams().begin(),
                    b.grams().end());
}

template <typename Entry>
using Sorted = std::vector<const Entry*>;
template <typename Entry>
using Span = absl::Span<const Entry* const>;

// The entries in the order of their keys. A server sends them so.
template <typename Entry>
Sorted<Entry> Sort(const google::protobuf::RepeatedPtrField<Entry>& entries) {
  Sorted<Entry> sorted;
  sorted.reserve(static_cast<size_t>(entries.size()));
  for (const Entry& entry : entries) sorted.push_back(&entry);
  const auto less = [](const Entry* a, const Entry* b) {
    return ToReportedKey(KeyOf(*a)) < ToReportedKey(KeyOf(*b));
  };
  if (!std::is_sorted(sorted.begin(), sorted.end(), less)) {
    std::stable_sort(sorted.begin(), sorted.end(), less);
  }
  return sorted;
}

// Makes `first` the key of the first of `entries`, if that is less.
template <typename Entry>
void FindFirst(Span<Entry> entries, const v1::ContributionKey*& first) {
  if (entries.empty()) return;
  const v1::ContributionKey& key = KeyOf(*entries.front());
  if (first == nullptr || ToReportedKey(key) < ToReportedKey(*first)) {
    first = &key;
  }
}

// Removes the entries of `key` from the front of `entries`, and returns them.
template <typename Entry>
Span<Entry> TakeFirst(const ReportedKey& key, Span<Entry>& entries) {
  size_t count = 0;
  while (count < entries.size() &&
         ToReportedKey(KeyOf(*entries[count])) == key) {
    ++count;
  }
  const Span<Entry> first = entries.first(count);
  entries.remove_prefix(count);
  return first;
}

// Calls `change` with each fragment of which `before` and `after` have different
// entries.
template <typename Rounds, typename Change>
void CompareRounds(const Rounds& before, const Rounds& after,
                   const Change& change) {
  for (int i = 0; i < std::max(before.size(), after.size()); ++i) {
    const bool is_same = i < before.size() && i < after.size() &&
                         IsSame(before[i], after[i]);
    if (is_same) continue;
    if (i < before.size()) change(before[i].fragment());
    if (i < after.size()) change(after[i].fragment());
  }
}

// The same header as of another shard, or a copy.
SharedInfo Share(const v1::ContributionInfo& info,
                 const KnownContribution& known) {
  for (const ShardPart& part : known.parts) {
    for (const SharedInfo& other : {part.info, part.had}) {
      if (other != nullptr && IsSameInfo(*other, info)) return other;
    }
  }
  return std::make_shared<const v1::ContributionInfo>(info);
}

// True if the index has a place for the key.
bool IsKept(const RunState& state, const v1::ContributionKey& key) {
  if (key.run_epoch() != state.run_epoch() || key.fragment() < 0 ||
      key.fragment() >= state.fragments().size() || key.slot() < 0 ||
      key.seq() < 1 || key.seq() > kSeqMax) {
    return false;
  }
  return !state.outcomes().Contains(key) ||
         FindSealed(state.fragments()[key.fragment()],
                    {key.slot(), key.seq()}) != nullptr;
}

void NoteChanged(const RunState& state, const ContributionPlace& place,
                 Observations& observed) {
  // An ended run recalls nothing.
  if (!state.ended()) observed.index.changed.push_back(place);
}

void DropIfEmpty(const ContributionPlace& place, int32_t shard,
                 Observations& observed) {
  const auto& [fragment, slot, seq] = place;
  auto& all = observed.index.fragments[fragment].known;
  const auto known = all.find({slot, seq});
  std::erase_if(known->second.parts, [&](const ShardPart& part) {
    return part.shard == shard && part.is_empty();
  });
  if (known->second.parts.empty()) all.erase(known);
}

// Null: the index does not have the contribution, and has no place for it or
// `adds` is false.
KnownContribution* FindKnown(const RunState& state,
                             const v1::ContributionKey& key, bool adds,
                             ContributionIndex& index) {
  if (key.run_epoch() != state.run_epoch() || key.fragment() < 0 ||
      key.fragment() >= index.fragments.size()) {
    return nullptr;
  }
  auto& all = index.fragments[key.fragment()].known;
  auto known = all.find({key.slot(), key.seq()});
  if (known == all.end()) {
    if (!adds || !IsKept(state, key)) return nullptr;
    known = all.try_emplace({key.slot(), key.seq()}).first;
    known->second.key = key;
  }
  return &known->second;
}

// Makes the part of `shard` of the entries in its report.
ShardPart MakePart(int32_t shard, Span<v1::StoredContribution> stored,
                   Span<v1::RefusedContribution> refused,
                   const KnownContribution& known) {
  ShardPart part;
  part.shard = shard;
  part.stored_count = static_cast<int32_t>(stored.size());
  for (const v1::StoredContribution* one : stored) {
    part.norm_squared += one->norm_squared();
    if (part.info == nullptr) {
      part.info = Share(one->info(), known);
    } else if (!IsSameInfo(*part.info, one->info())) {
      part.has_other_info = true;
    }
  }
  if (refused.empty()) return part;
  auto kept = std::make_shared<v1::RefusedContribution>(*refused.back());
  for (const v1::RefusedContribution* one : refused) {
    if (!one->has_anchor_version()) continue;
    kept->set_anchor_version(one->anchor_version());
    break;
  }
  part.refused = std::move(kept);
  return part;
}

// True if two reports that make these parts say the same.
bool IsSame(const ShardPart& a, const ShardPart& b) {
  return a.stored_count == b.stored_count &&
         a.has_other_info == b.has_other_info &&
         std::bit_cast<uint64_t>(a.norm_squared) ==
             std::bit_cast<uint64_t>(b.norm_squared) &&
         (a.info == nullptr || IsSameInfo(*a.info, *b.info)) &&
         (a.refused == nullptr) == (b.refused == nullptr) &&
         (a.refused == nullptr || IsSame(*a.refused, *b.refused));
}

// A report says this of a contribution; both empty: nothing.
void TakeContribution(const RunState& state, int32_t number,
                      const v1::ContributionKey& key,
                      Span<v1::StoredContribution> stored,
                      Span<v1::RefusedContribution> refused,
                      Observations& observed, ReportDifference& difference) {
  ObservedShard& shard = observed.shards[number];
  const bool is_named = !stored.empty() || !refused.empty();
  bool was_named = false;
  bool was_refused = false;
  const auto ended = shard.ended.find(ToReportedKey(key));
  if (ended != shard.ended.end()) {
    was_named = true;
    was_refused = ended->second;
    shard.ended.erase(ended);
  }
  const auto note = [&](bool is_other) {
    shard.contribution_count += (is_named ? 1 : 0) - (was_named ? 1 : 0);
    difference.contributions |= is_other || is_named != was_named;
    difference.refusals |= was_refused == refused.empty();
  };
  KnownContribution* known = FindKnown(state, key, is_named, observed.index);
  if (known == nullptr) {
    if (is_named) shard.ended[ToReportedKey(key)] = !refused.empty();
    return note(false);
  }
  if (!is_named && known->Find(number) == nullptr) return note(false);
  ShardPart made = MakePart(number, stored, refused, *known);
  ShardPart& part = known->Part(number);
  was_named |= part.is_named();
  was_refused |= part.refused != nullptr;
  const bool is_same = IsSame(part, made);
  note(!is_same);
  if (is_same) return;
  made.had = part.had;
  part = std::move(made);
  const ContributionPlace place = ToPlace(known->key);
  DropIfEmpty(place, number, observed);
  NoteChanged(state, place, observed);
  JudgeAgain(state, place, observed);
}

// Ends what the shard has of contributions that its whole report does not name.
// `named`: in order.
void TakeMissing(const RunState& state, int32_t number,
                 const std::vector<ReportedKey>& named, Observations& observed,
                 ReportDifference& difference) {
  std::vector<v1::ContributionKey> missing;
  const auto is_missing = [&named](const ReportedKey& key) {
    return !std::binary_search(named.begin(), named.end(), key);
  };
  for (const FragmentContributions& fragment : observed.index.fragments) {
    for (const auto& [place, known] : fragment.known) {
      const ShardPart* const part = known.Find(number);
      if (part != nullptr && part->is_named() &&
          is_missing(ToReportedKey(known.key))) {
        missing.push_back(known.key);
      }
    }
  }
  for (const v1::ContributionKey& key : missing) {
    TakeContribution(state, number, key, {}, {}, observed, difference);
  }
  ObservedShard& shard = observed.shards[number];
  shard.contribution_count -= static_cast<int64_t>(
      std::erase_if(shard.ended, [&](const auto& one) {
        const bool is_gone = is_missing(one.first);
        difference.contributions |= is_gone;
        difference.refusals |= is_gone && one.second;
        return is_gone;
      }));
}

ReportDifference TakeContributions(const RunState& state, int32_t number,
                                   bool is_whole, const v1::ShardReport& report,
                                   Observations& observed) {
  ReportDifference difference;
  const Sorted<v1::StoredContribution> all_stored = Sort(report.stored());
  const Sorted<v1::RefusedContribution> all_refused = Sort(report.refused());
  const Sorted<v1::ContributionKey> all_gone = Sort(report.gone());
  Span<v1::StoredContribution> stored = all_stored;
  Span<v1::RefusedContribution> refused = all_refused;
  Span<v1::ContributionKey> gone = all_gone;
  std::vector<ReportedKey> named;
  while (true) {
    const v1::ContributionKey* key = nullptr;
    FindFirst(stored, key);
    FindFirst(refused, key);
    FindFirst(gone, key);
    if (key == nullptr) break;
    const ReportedKey reported = ToReportedKey(*key);
    TakeFirst(reported, gone);
    const auto stored_now = TakeFirst(reported, stored);
    TakeContribution(state, number, *key, stored_now,
                     TakeFirst(reported, refused), observed, difference);
    if (is_whole) named.push_back(reported);
  }
  if (is_whole) TakeMissing(state, number, named, observed, difference);
  return difference;
}

// Shards must have what is sealed, unless they have merged it.
void NoteSealed(const FragmentState& fragment, const RunState& state,
                Observations& observed) {
  for (const storage::v1::SealedInfo& sealed : fragment.sealed.infos()) {
    NoteChanged(state, ToPlace(sealed.info().key()), observed);
  }
}

void SetSealedDue(const RunState& state, Observations& observed) {
  for (const FragmentState& fragment : state.fragments()) {
    if (fragment.phase == RoundPhase::kSealed) {
      observed.SetDue(fragment.newest.fragment());
    }
  }
}

// Judges all contributions to `fragment` again, unless a SEAL is the change, and
// lets UpdateRecalls decide on them.
void ChangeFragment(const RunState& state, int32_t fragment,
                    Observations& observed, bool is_seal = false) {
  if (fragment < 0 || fragment >= observed.index.fragments.size()) return;
  observed.SetDue(fragment);
  std::vector<SlotSeq> places;
  for (const auto& [place, known] : observed.index.fragments[fragment].known) {
    places.push_back(place);
  }
  for (const auto& [slot, seq] : places) {
    NoteChanged(state, {fragment, slot, seq}, observed);
    if (!is_seal) JudgeAgain(state, {fragment, slot, seq}, observed);
  }
  NoteSealed(state.fragments()[fragment], state, observed);
}

void ChangeAll(const RunState& state, Observations& observed) {
  observed.SetAllDue();
  for (size_t f = 0; f < observed.index.fragments.size(); ++f) {
    ChangeFragment(state, static_cast<int32_t>(f), observed);
  }
}

// Judges the contributions of `slot` to `fragment` again, and lets UpdateRecalls
// decide on them. Requires: the index has the fragment.
void ChangeSlot(const RunState& state, int32_t fragment, int32_t slot,
                Observations& observed) {
  std::vector<int64_t> seqs;
  const auto& all = observed.index.fragments[fragment].known;
  for (auto known = all.lower_bound({slot, 0});
       known != all.end() && known->first.first == slot; ++known) {
    seqs.push_back(known->first.second);
  }
  for (const int64_t seq : seqs) {
    NoteChanged(state, {fragment, slot, seq}, observed);
    JudgeAgain(state, {fragment, slot, seq}, observed);
  }
}

void TakeOutcome(const RunState& state, const v1::ContributionOutcome& outcome,
                 Observations& observed) {
  const v1::ContributionKey& key = outcome.key();
  observed.SetDue(key.fragment());
  if (key.fragment() < 0 ||
      key.fragment() >= observed.index.fragments.size()) {
    return;
  }
  // Smaller seqs of the slot may have ended with it (state/outcome_table.h).
  ChangeSlot(state, key.fragment(), key.slot(), observed);
}

// If an island sits out, or has sat out until the newest record, then what
// rounds ask for and why they wait depends on other fragments' outcomes too.
void SetDueBySittingOut(const RunState& state, Observations& observed) {
  const bool had_refused = observed.has_refused;
  observed.has_refused = std::any_of(
      state.members().begin(), state.members().end(),
      [](const Member& member) { return member.refused_count > 0; });
  if (had_refused || observed.has_refused) observed.SetAllDue();
}

// A round of `fragment` has ended with `outcomes`.
void TakeEnd(
    const RunState& state, int32_t fragment,
    const google::protobuf::RepeatedPtrField<v1::ContributionOutcome>& outcomes,
    Observations& observed) {
  for (const v1::ContributionOutcome& outcome : outcomes) {
    if (outcome.key().fragment() == fragment) continue;  // As below.
    TakeOutcome(state, outcome, observed);
  }
  ChangeFragment(state, fragment, observed);
  SetDueBySittingOut(state, observed);
}

}  // namespace

const storage::v1::SealedInfo* FindSealed(const FragmentState& fragment,
                                          const SlotSeq& place) {
  if (fragment.phase != RoundPhase::kSealed) return nullptr;
  const auto& infos = fragment.sealed.infos();
  const auto found = std::lower_bound(
      infos.begin(), infos.end(), place,
      [](const storage::v1::SealedInfo& info, const SlotSeq& at) {
        return SlotSeq(info.info().key().slot(), info.info().key().seq()) < at;
      });
  if (found == infos.end() || found->info().key().slot() != place.first ||
      found->info().key().seq() != place.second) {
    return nullptr;
  }
  return &*found;
}

void ResizeObservations(const RunState& state, Observations& observed) {
  observed.shards.resize(state.server_ids().size());
  observed.members.resize(state.members().size());
  observed.timers.resize(state.fragments().size());
  observed.asked.resize(state.fragments().size());
  observed.decisions.resize(state.fragments().size());
  ContributionIndex& index = observed.index;
  if (index.fragments.size() == state.fragments().size() &&
      index.shard_count == observed.shards.size()) {
    return;
  }
  index.fragments.resize(state.fragments().size());
  index.shard_count = observed.shards.size();
  for (size_t f = 0; f < index.fragments.size(); ++f) {
    index.fragments[f].holders = ListShards(state, static_cast<int32_t>(f));
  }
  ChangeAll(state, observed);
}

void NoteJudged(const RunState& state, const ContributionPlace& place,
                Observations& observed) {
  if (state.ended()) return;
  const auto& [fragment, slot, seq] = place;
  observed.index.fragments[fragment].unsettled.emplace_back(slot, seq);
  observed.index.fragments[fragment].unmeasured.emplace_back(slot, seq);
  observed.timers[fragment].standing.Note(slot);
}

void JudgeAgain(const RunState& state, const ContributionPlace& place,
                Observations& observed) {
  const auto& [fragment, slot, seq] = place;
  NoteJudged(state, place, observed);
  FragmentContributions& all = observed.index.fragments[fragment];
  const auto known = all.known.find({slot, seq});
  observed.SetDue(fragment);
  if (known != all.known.end() && IsUndecided(state, known->second.key)) {
    std::optional<SeenContribution> seen = JudgeContribution(
        state, observed.shards, all.holders, known->second);
    if (seen.has_value()) {
      all.seen.insert_or_assign({slot, seq}, *std::move(seen));
      return;
    }
  }
  all.seen.erase({slot, seq});
  if (known != all.known.end() && !IsKept(state, known->second.key)) {
    for (const ShardPart& part : known->second.parts) {
      if (!part.is_named()) continue;
      observed.shards[part.shard].ended[ToReportedKey(known->second.key)] =
          part.refused != nullptr;
    }
    all.known.erase(known);
  }
}

bool CanTake(const ObservedShard& shard, int64_t report_seq,
             const v1::ShardReport& report) {
  return report.base_report_seq() == 0 ||
         (report.base_report_seq() == shard.report_seq &&
          report_seq > shard.report_seq &&
          shard.changes_bytes <= kChangesBytesMax);
}

ReportDifference TakeReport(const RunState& state, int32_t number,
                            int64_t report_seq, v1::ShardReport& report,
                            Observations& observed) {
  ObservedShard& shard = observed.shards[number];
  const bool was_reported = shard.reported;
  const bool was_heard = IsHeard(shard);
  const bool is_whole = report.base_report_seq() == 0;
  v1::ShardReport contributions;
  contributions.mutable_stored()->Swap(report.mutable_stored());
  contributions.mutable_refused()->Swap(report.mutable_refused());
  contributions.mutable_gone()->Swap(report.mutable_gone());
  const v1::ShardReport before = std::exchange(shard.report, std::move(report));
  const v1::ShardReport& newest = shard.report;
  shard.reported = true;
  shard.report_seq = report_seq;
  shard.changes_bytes =
      is_whole ? 0 : shard.changes_bytes + contributions.ByteSizeLong();
  CompareRounds(before.prepared(), newest.prepared(), [&](int32_t fragment) {
    if (fragment < 0 || fragment >= state.fragments().size()) return;
    observed.SetDue(fragment);
    NoteSealed(state.fragments()[fragment], state, observed);
  });
  CompareRounds(before.statistics(), newest.statistics(),
                [&](int32_t fragment) { observed.SetDue(fragment); });
  if (before.persisted_commit_seq() != newest.persisted_commit_seq()) {
    SetSealedDue(state, observed);
  }
  const ReportDifference difference =
      TakeContributions(state, number, is_whole, contributions, observed);
  if (!was_reported || was_heard != IsHeard(shard)) ChangeAll(state, observed);
  return difference;
}

void ForgetReport(const RunState& state, int32_t number,
                  Observations& observed) {
  ObservedShard fresh;
  fresh.acknowledged_commit_seq =
      observed.shards[number].acknowledged_commit_seq;
  observed.shards[number] = std::move(fresh);
  for (FragmentContributions& fragment : observed.index.fragments) {
    for (auto known = fragment.known.begin(); known != fragment.known.end();) {
      const SlotSeq place = known->first;
      std::vector<ShardPart>& parts = known->second.parts;
      NoteChanged(state, ToPlace(known->second.key), observed);
      for (ShardPart& part : parts) {
        if (part.shard != number) continue;
        part.stored_count = 0;
        part.has_other_info = false;
        part.norm_squared = 0;
        part.info = nullptr;
        part.refused = nullptr;
      }
      std::erase_if(parts,
                    [](const ShardPart& part) { return part.is_empty(); });
      if (!parts.empty()) {
        ++known;
        continue;
      }
      NoteJudged(state, ToPlace(known->second.key), observed);
      fragment.seen.erase(place);
      known = fragment.known.erase(known);
    }
  }
  ChangeAll(state, observed);
}

void TakeRecord(const RunState& state, const storage::v1::Record& record,
                Observations& observed) {
  using Record = storage::v1::Record;
  switch (record.body_case()) {
    case Record::kMemberSet:
      observed.SetAllDue();
      for (size_t f = 0; f < observed.index.fragments.size(); ++f) {
        ChangeSlot(state, static_cast<int32_t>(f), record.member_set().slot(),
                   observed);
      }
      return;
    case Record::kRoundOpened:
      return ChangeFragment(state, record.round_opened().fragment(), observed);
    case Record::kRoundSealed:
      return ChangeFragment(state, record.round_sealed().seal().fragment(),
                            observed, /*is_seal=*/true);
    case Record::kRoundJudged:
      return observed.SetDue(record.round_judged().fragment());
    case Record::kRoundCommitted: {
      const v1::Commit& commit = record.round_committed().commit();
      TakeEnd(state, commit.fragment(), commit.outcomes(), observed);
      // Where fragments end together, each one's end depends on all.
      if (HasTokenBudget(state.spec().schedule())) observed.SetAllDue();
      // The slowest shard has one commit more to persist.
      return SetSealedDue(state, observed);
    }
    case Record::kRoundAborted:
      return TakeEnd(state, record.round_aborted().fragment(),
                     record.round_aborted().outcomes(), observed);
    case Record::kOutcomesSet:
      for (const auto& outcome : record.outcomes_set().outcomes()) {
        TakeOutcome(state, outcome, observed);
      }
      return SetDueBySittingOut(state, observed);
    case Record::kPinSet:
    case Record::kPinReleased:
    case Record::kEvaluated:
    case Record::kWorkUnpushed:
      return;
    case Record::kRunStarted:
      return ChangeAll(state, observed);
    default:
      observed.SetAllDue();
  }
}

void TakeSealed(const RunState& state, Observations& observed) {
  ChangeAll(state, observed);
}

void ForgetReports(Observations& observed) {
  for (ObservedShard& shard : observed.shards) shard = ObservedShard();
  observed.index.Clear();
  observed.recalls.clear();
  observed.SetAllDue();
}

bool NoteClaim(const RunState& state, int32_t slot, double claim,
               Observations& observed) {
  const ObservedMember& member = observed.members[slot];
  const double before =
      member.progress.has_value() ? member.progress->tokens_per_second() : 0;
  if (before == claim || MeasuredSpeed(member) > 0) return false;
  SetDueBySpeeds(state, observed);
  return true;
}

void SetDueBySpeeds(const RunState& state, Observations& observed) {
  for (const FragmentState& fragment : state.fragments()) {
    const int32_t f = fragment.newest.fragment();
    if (fragment.phase == RoundPhase::kOpen &&
        observed.decisions[f].reads_speeds) {
      observed.SetDue(f);
    }
  }
}

}  // namespace atl::coordinator
