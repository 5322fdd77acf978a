#include "server/core/shard_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/core/faults.h"

namespace atl::server {
namespace {

absl::string_view KindName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kMakeVersion0:
      return "make-version-0";
    case ActionKind::kReserve:
      return "reserve";
    case ActionKind::kMeasure:
      return "measure";
    case ActionKind::kLiveMerge:
      return "live-merge";
    case ActionKind::kPrepare:
      return "prepare";
    case ActionKind::kDiscard:
      return "discard";
    case ActionKind::kApply:
      return "apply";
    case ActionKind::kPersist:
      return "persist";
    case ActionKind::kDrop:
      return "drop";
    case ActionKind::kRelease:
      return "release";
    case ActionKind::kWriteManifest:
      return "write-manifest";
    case ActionKind::kDropManifest:
      return "drop-manifest";
    case ActionKind::kDropKept:
      return "drop-kept";
    case ActionKind::kGiveUpKept:
      return "give-up-kept";
    case ActionKind::kDropSpares:
      return "drop-spares";
  }
  return "?";
}

std::vector<bool> FindHolds(const ShardShape& shape) {
  std::vector<bool> holds;
  for (const auto& fragment : shape.fragments) holds.push_back(fragment.holds);
  return holds;
}

// Most contributions that a round reserves space for.
constexpr int kReservedContributionsMax = 64;

}  // namespace

std::string ShardAction::ToString() const {
  std::string text(KindName(kind));
  if (kind == ActionKind::kDrop) {
    return absl::StrCat(
        text, " ",
        absl::StrJoin(keys, ", ", [](std::string* out, const auto& key) {
          absl::StrAppend(out, key.ToString());
        }));
  }
  if (kind == ActionKind::kDropSpares) return text;
  if (kind == ActionKind::kWriteManifest || kind == ActionKind::kDropManifest) {
    return absl::StrCat(text, " ", pin.pin_id());
  }
  if (kind == ActionKind::kDropKept || kind == ActionKind::kGiveUpKept) {
    return absl::StrCat(text, " of commits ", absl::StrJoin(commit_seqs, ", "),
                        pins.empty() ? "" : "; pins ",
                        absl::StrJoin(pins, ", "));
  }
  absl::StrAppend(&text, " fragment ", fragment, " version ", version);
  if (kind == ActionKind::kLiveMerge) {
    absl::StrAppend(&text, " of ", live_merge.keys.size());
  }
  if (kind == ActionKind::kPrepare || kind == ActionKind::kMeasure) {
    absl::StrAppend(&text, " attempt ", attempt, " of ",
                    seal.contributions_size());
  }
  if (kind == ActionKind::kApply || kind == ActionKind::kPersist) {
    absl::StrAppend(&text, " commit ", commit.commit_seq());
  }
  if (kind == ActionKind::kPersist && keep) absl::StrAppend(&text, " kept");
  if (kind == ActionKind::kReserve) absl::StrAppend(&text, " for ", count);
  return text;
}

ShardMachine::ShardMachine(ShardShape shape, RecoveredShard recovered)
    : shape_(std::move(shape)),
      run_uid_(shape_.run_uid),
      run_epoch_(recovered.run_epoch),
      failed_run_epoch_(recovered.failed_run_epoch),
      applied_commit_seq_(recovered.persisted_commit_seq),
      persisted_commit_seq_(recovered.persisted_commit_seq),
      fragments_(shape_.fragments.size()),
      kept_commits_(std::move(recovered.kept_commits)),
      given_up_(std::move(recovered.given_up)),
      held_(std::move(recovered.held)),
      checkpoints_(FindHolds(shape_), std::move(recovered.manifests)),
      refused_(std::move(recovered.refused)),
      lost_(std::move(recovered.lost)) {
  for (size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    if (f < recovered.versions.size()) {
      fragment.version = recovered.versions[f];
      fragment.version0_digest = recovered.version0_digests[f];
    }
    if (f < recovered.version0_norms_squared.size()) {
      fragment.version0_norm_squared = recovered.version0_norms_squared[f];
    }
    // Fragments without a block here start at version 0.
    if (!shape_.fragments[f].holds) {
      fragment.version = std::max<int64_t>(fragment.version, 0);
      fragment.version0_norm_squared = 0;
    }
    fragment.persisted_version = fragment.version;
  }
  for (StoredFact& fact : recovered.stored) {
    const auto key = ContributionKey::FromProto(fact.info.key());
    stored_[key] = std::move(fact);
  }
  for (const v1::ContributionInfo& info : recovered.partial) {
    partial_[ContributionKey::FromProto(info.key())] = info;
  }
  for (const int32_t f : recovered.imported) fragments_[f].imported = true;
  for (const PreparedFact& prepared : recovered.prepared) {
    Fragment& fragment = fragments_[prepared.fragment];
    fragment.recorded = prepared;
    if (recovered.prepared_here.count(prepared.fragment) &&
        prepared.version == fragment.version) {
      fragment.prepared = prepared;
    }
  }
}

// --- Events -----------------------------------------------------------------

void ShardMachine::OnImported(int32_t fragment) {
  fragments_[fragment].imported = true;
}

void ShardMachine::OnVersion0(int32_t fragment, const Version0Fact& fact) {
  Fragment& state = fragments_[fragment];
  state.version0_named = false;
  if (state.version >= 0) return;
  state.version = 0;
  state.persisted_version = 0;
  state.version0_digest = fact.digest;
  state.version0_norm_squared = fact.norm_squared;
  held_.insert({fragment, 0});
  CheckVersion0();
}

void ShardMachine::OnBound(const v1::ContributionInfo& info) {
  partial_[ContributionKey::FromProto(info.key())] = info;
}

void ShardMachine::OnStored(const v1::ContributionInfo& info,
                            double norm_squared, int64_t live_set_id) {
  if (shape_.live_merge) {
    const std::optional<LiveSet>& set =
        fragments_[info.key().fragment()].live_merge;
    if (!set || set->id != live_set_id) return;
  }
  const auto key = ContributionKey::FromProto(info.key());
  partial_.erase(key);
  lost_.erase(key);
  stored_[key] = {info, norm_squared};
  NoteChanged(key);
}

void ShardMachine::OnLost(const ContributionKey& key, absl::string_view why) {
  stored_.erase(key);
  lost_[key] = std::string(why);
  NoteChanged(key);
}

void ShardMachine::OnRefused(const v1::ContributionInfo& info,
                             absl::string_view reason) {
  const auto key = ContributionKey::FromProto(info.key());
  partial_.erase(key);
  stored_.erase(key);
  refused_[key] = {std::string(reason), info.anchor_version()};
  NoteChanged(key);
  const std::optional<LiveSet>& set = fragments_[key.fragment].live_merge;
  if (set &&
      std::find(set->keys.begin(), set->keys.end(), key) != set->keys.end()) {
    DiscardLiveMerge(key.fragment);
  }
}

void ShardMachine::OnMeasured(MeasuredFact measured) {
  Fragment& fragment = fragments_[measured.fragment];
  fragment.measuring.reset();
  fragment.measured = std::move(measured);
}

void ShardMachine::OnPrepared(const PreparedFact& prepared) {
  Fragment& fragment = fragments_[prepared.fragment];
  fragment.preparing.reset();
  held_.insert({prepared.fragment, prepared.version + 1});
  if (fragment.version != prepared.version) return;
  const std::optional<PreparedFact>& record = fragment.recorded;
  if (record && record->version == prepared.version &&
      record->attempt == prepared.attempt &&
      (record->digest != prepared.digest ||
       record->replica_digest != prepared.replica_digest)) {
    OnFault(MakeFault(
        "DATA_LOSS",
        absl::StrCat("fragment ", prepared.fragment, " version ",
                     prepared.version + 1, " attempt ", prepared.attempt,
                     " with digest ", record->digest.ToHex(), " (replica ",
                     record->replica_digest.ToHex(),
                     "), as it was prepared before"),
        absl::StrCat("digest ", prepared.digest.ToHex(), " (replica ",
                     prepared.replica_digest.ToHex(), ")")));
    return;
  }
  fragment.recorded = prepared;
  fragment.prepared = prepared;
}

void ShardMachine::OnPersisted(int64_t commit_seq) {
  persisting_ = false;
  while (!to_persist_.empty() &&
         to_persist_.front().commit_seq() <= commit_seq) {
    const v1::Commit& commit = to_persist_.front();
    fragments_[commit.fragment()].persisted_version = commit.version();
    for (const v1::ContributionOutcome& outcome : commit.outcomes()) {
      Forget(ContributionKey::FromProto(outcome.key()));
    }
    persisted_commit_seq_ = commit.commit_seq();
    if (persist_keeps_) kept_commits_.insert(commit.commit_seq());
    to_persist_.pop_front();
  }
}

void ShardMachine::OnManifestWritten(const std::string& pin_id) {
  checkpoints_.OnWritten(pin_id);
}

void ShardMachine::OnManifestDropped(const std::string& pin_id) {
  checkpoints_.OnDropped(pin_id);
}

void ShardMachine::OnVersionDamaged(int32_t fragment, int64_t version,
                                    absl::string_view why) {
  checkpoints_.OnDamaged(fragment, version, why);
  if (fragments_[fragment].version == version) {
    OnFault(MakeFault("DATA_LOSS", "", why));
  }
}

void ShardMachine::OnFailed(const ShardAction& action,
                            const absl::Status& status) {
  if (action.kind == ActionKind::kWriteManifest) {
    // A failed checkpoint must not stop rounds.
    return checkpoints_.OnFailed(action.pin.pin_id(), status);
  }
  if (action.kind == ActionKind::kDropManifest) {
    checkpoints_.OnFailed(action.pin.pin_id(), status);
  }
  if (absl::IsDataLoss(status) || absl::IsInternal(status) ||
      absl::IsInvalidArgument(status)) {
    OnFault(ToFault(status));
    return;
  }
  Fragment& fragment = fragments_[action.fragment];
  switch (action.kind) {
    case ActionKind::kMakeVersion0:
      fragment.version0_named = false;
      break;
    case ActionKind::kMeasure:
      fragment.measuring.reset();
      break;
    case ActionKind::kLiveMerge:
      DiscardLiveMerge(action.fragment);
      break;
    case ActionKind::kPrepare:
      fragment.preparing.reset();
      // Writes failed while it was merged: the files are incomplete.
      if (shape_.live_merge && !absl::IsResourceExhausted(status) &&
          fragment.live_merge && fragment.live_merge->Merges(action.seal)) {
        DiscardLiveMerge(action.fragment);
      }
      break;
    case ActionKind::kPersist:
      persisting_ = false;
      break;
    case ActionKind::kReserve:
      fragment.reserved_version = -1;
      break;
    default:
      break;
  }
}

void ShardMachine::OnFault(v1::Fault fault) {
  if (!fault_.has_value()) fault_ = std::move(fault);
}

std::string ShardMachine::fault() const {
  if (!has_stopped()) return "";
  return ToText(fault_.has_value() ? *fault_ : *plan_fault_);
}

void ShardMachine::Forget(const ContributionKey& key) {
  if (IsReported(key)) NoteChanged(key);
  stored_.erase(key);
  partial_.erase(key);
  refused_.erase(key);
  lost_.erase(key);
  decided_.erase(key);
}

// --- Effects ----------------------------------------------------------------

std::vector<ShardAction> ShardMachine::NextActions() {
  std::vector<ShardAction> actions;
  waiting_reason_.clear();
  if (!has_plan_) {
    if (!has_stopped()) NameDropSpares(&actions);
    return actions;
  }
  if (!has_stopped()) NameVersion0(&actions);
  if (!has_stopped() && AllInitialized()) {
    NameApplies(&actions);
    for (size_t f = 0; f < fragments_.size() && !has_stopped(); ++f) {
      NamePrepare(static_cast<int32_t>(f), &actions);
      NameLiveSet(static_cast<int32_t>(f), &actions);
    }
    NamePersist(&actions);
    NameReserves(&actions);
    NameDrops(&actions);
    NameManifests(&actions);
    NameReleases(&actions);
    NameKept(&actions);
    NameDropSpares(&actions);
  }
  if (has_stopped()) {
    actions.clear();
    for (size_t f = 0; f < fragments_.size(); ++f) {
      NameGiveUp(static_cast<int32_t>(f), &actions);
    }
  }
  return actions;
}

void ShardMachine::NameVersion0(std::vector<ShardAction>* actions) {
  if (plan_.run_state() == v1::RUN_STATE_CANCELLED) return;
  for (size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    if (fragment.version >= 0 || fragment.version0_named) continue;
    if (shape_.import && !fragment.imported) continue;
    fragment.version0_named = true;
    ShardAction action{ActionKind::kMakeVersion0};
    action.fragment = static_cast<int32_t>(f);
    actions->push_back(std::move(action));
  }
}

void ShardMachine::NameReserves(std::vector<ShardAction>* actions) {
  for (const v1::OpenRound& round : plan_.open_rounds()) {
    const int32_t f = round.fragment();
    if (f < 0 || f >= static_cast<int32_t>(fragments_.size())) continue;
    Fragment& fragment = fragments_[f];
    if (!shape_.fragments[f].holds || fragment.version != round.version() ||
        fragment.reserved_version == round.version()) {
      continue;
    }
    fragment.reserved_version = round.version();
    ShardAction action{ActionKind::kReserve};
    action.fragment = f;
    action.version = round.version();
    action.count = std::min(plan_.members_size(), kReservedContributionsMax);
    actions->push_back(std::move(action));
  }
}

const v1::Commit* ShardMachine::NextCommit() const {
  for (const v1::Commit& commit : plan_.commits()) {
    if (commit.commit_seq() > applied_commit_seq_) return &commit;
  }
  return nullptr;
}

void ShardMachine::NameApplies(std::vector<ShardAction>* actions) {
  while (const v1::Commit* commit = NextCommit()) {
    const int32_t f = commit->fragment();
    if (f < 0 || f >= static_cast<int32_t>(fragments_.size())) {
      return OnFault(MakeFault("SHARD_BEHIND",
                               absl::StrCat("fragment ", f, ", which commit ",
                                            commit->commit_seq(), " names"),
                               absl::StrCat(fragments_.size(), " fragments")));
    }
    Fragment& fragment = fragments_[f];
    if (shape_.fragments[f].holds) {
      if (!fragment.prepared ||
          fragment.prepared->attempt != commit->attempt()) {
        return;  // NamePrepare asks for it.
      }
      if (shape_.fragments[f].holds_all &&
          fragment.prepared->digest != Digest128::FromProto(commit->digest())) {
        return OnFault(MakeFault(
            "DATA_LOSS",
            absl::StrCat("fragment ", f, " version ", commit->version(),
                         " with digest ",
                         Digest128::FromProto(commit->digest()).ToHex(),
                         ", as commit ", commit->commit_seq(), " says"),
            absl::StrCat("digest ", fragment.prepared->digest.ToHex())));
      }
    }
    fragment.prepared.reset();
    fragment.live_merge.reset();
    fragment.holds_live_merge = false;
    fragment.version = commit->version();
    applied_commit_seq_ = commit->commit_seq();
    for (const v1::ContributionOutcome& outcome : commit->outcomes()) {
      const auto key = ContributionKey::FromProto(outcome.key());
      if (IsReported(key)) NoteChanged(key);
      decided_.insert(key);
    }
    to_persist_.push_back(*commit);
    ShardAction action{ActionKind::kApply};
    action.fragment = f;
    action.version = commit->version();
    action.commit = *commit;
    actions->push_back(std::move(action));
  }
}

const v1::Seal* ShardMachine::FindSeal(int32_t f, int64_t version,
                                       int64_t attempt) const {
  for (const v1::Seal& seal : plan_.seals()) {
    if (seal.fragment() == f && seal.version() == version &&
        seal.attempt() == attempt) {
      return &seal;
    }
  }
  return nullptr;
}

const v1::Commit* ShardMachine::CommitOfNext(int32_t f) const {
  for (const v1::Commit& commit : plan_.commits()) {
    if (commit.fragment() == f &&
        commit.version() == fragments_[f].version + 1) {
      return &commit;
    }
  }
  return nullptr;
}

bool ShardMachine::IsCommitted(const v1::Seal& seal) const {
  const v1::Commit* commit = CommitOfNext(seal.fragment());
  return commit != nullptr && commit->version() == seal.version() + 1 &&
         commit->attempt() == seal.attempt();
}

const v1::Seal* ShardMachine::WantedSeal(int32_t f) const {
  const int64_t version = fragments_[f].version;
  if (const v1::Commit* commit = CommitOfNext(f)) {
    return FindSeal(f, version, commit->attempt());
  }
  const v1::Seal* newest = nullptr;
  for (const v1::Seal& seal : plan_.seals()) {
    if (seal.fragment() == f && seal.version() == version &&
        (newest == nullptr || seal.attempt() > newest->attempt())) {
      newest = &seal;
    }
  }
  return newest;
}

bool ShardMachine::SealIsStored(const v1::Seal& seal) {
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto key = ContributionKey::FromProto(sealed.key());
    const auto it = stored_.find(key);
    if (it == stored_.end()) {
      if (const v1::Commit* commit = CommitOfNext(seal.fragment())) {
        const auto why = lost_.find(key);
        OnFault(MakeFault(
            "DATA_LOSS", "",
            absl::StrCat(
                "commit ", commit->commit_seq(), " merges ", key.ToString(),
                ", which is lost here",
                why == lost_.end() ? "" : absl::StrCat(" (", why->second, ")"))));
        return false;
      }
      waiting_reason_ = absl::StrCat(
          "fragment ", seal.fragment(), " version ", seal.version(),
          " waits to be pushed again: ", key.ToString());
      return false;
    }
    if (Digest128::FromProto(it->second.info.digest()) !=
        Digest128::FromProto(sealed.digest())) {
      OnFault(MakeFault(
          "DATA_LOSS",
          absl::StrCat(key.ToString(), " with digest ",
                       Digest128::FromProto(sealed.digest()).ToHex(),
                       ", as it was sealed"),
          absl::StrCat(
              "digest ",
              Digest128::FromProto(it->second.info.digest()).ToHex())));
      return false;
    }
  }
  return true;
}

void ShardMachine::NamePrepare(int32_t f, std::vector<ShardAction>* actions) {
  Fragment& fragment = fragments_[f];
  if (!shape_.fragments[f].holds) return;
  const v1::Seal* seal = WantedSeal(f);
  if (fragment.prepared &&
      (seal == nullptr || seal->attempt() != fragment.prepared->attempt)) {
    fragment.prepared.reset();
    held_.erase({f, fragment.version + 1});
    // The live merge was consumed by it.
    if (shape_.live_merge) DiscardLiveMerge(f);
    ShardAction action{ActionKind::kDiscard};
    action.fragment = f;
    action.version = fragment.version + 1;
    actions->push_back(std::move(action));
  }
  if (shape_.judged && seal != nullptr && !seal->has_verdict()) {
    return NameMeasure(*seal, actions);
  }
  fragment.measured.reset();
  if (seal == nullptr || fragment.prepared || fragment.preparing) return;
  if (shape_.live_merge &&
      !(fragment.live_merge && fragment.live_merge->Merges(*seal))) {
    return;
  }
  // A fragment has one PREPARED record, in use until its version is persisted.
  if (shape_.live_merge && fragment.persisted_version != fragment.version)
    return;
  if (!SealIsStored(*seal)) return;
  fragment.preparing = {fragment.version, seal->attempt()};
  ShardAction action{ActionKind::kPrepare};
  action.fragment = f;
  action.version = fragment.version;
  action.attempt = seal->attempt();
  action.seal = *seal;
  actions->push_back(std::move(action));
}

void ShardMachine::NameMeasure(const v1::Seal& seal,
                               std::vector<ShardAction>* actions) {
  Fragment& fragment = fragments_[seal.fragment()];
  if (fragment.measured && (fragment.measured->version != seal.version() ||
                            fragment.measured->attempt != seal.attempt())) {
    fragment.measured.reset();
  }
  if (fragment.measured || fragment.measuring) return;
  if (!SealIsStored(seal)) return;
  fragment.measuring = {seal.version(), seal.attempt()};
  ShardAction action{ActionKind::kMeasure};
  action.fragment = seal.fragment();
  action.version = seal.version();
  action.attempt = seal.attempt();
  action.seal = seal;
  actions->push_back(std::move(action));
}

void ShardMachine::NamePersist(std::vector<ShardAction>* actions) {
  if (persisting_ || to_persist_.empty()) return;
  persisting_ = true;
  ShardAction action{ActionKind::kPersist};
  action.commit = to_persist_.front();
  action.fragment = action.commit.fragment();
  action.version = action.commit.version();
  action.keep = IsKept(action.commit.commit_seq());
  persist_keeps_ = action.keep;
  for (const v1::ContributionOutcome& outcome : action.commit.outcomes()) {
    const auto key = ContributionKey::FromProto(outcome.key());
    if (Knows(key)) action.keys.push_back(key);
  }
  actions->push_back(std::move(action));
}

bool ShardMachine::AllInitialized() const {
  return std::all_of(fragments_.begin(), fragments_.end(),
                     [](const Fragment& f) { return f.version >= 0; });
}

}  // namespace atl::server
