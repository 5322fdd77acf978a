// ShardMachine: takes a plan, or says why it and the disk do not fit together.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/faults.h"
#include "server/core/shard_machine.h"

namespace atl::server {
namespace {

// Largest commit_seq that the plan knows of.
int64_t NewestCommit(const v1::ServerRunPlan& plan) {
  int64_t newest = plan.commit_seq();
  for (const v1::Commit& commit : plan.commits()) {
    newest = std::max(newest, commit.commit_seq());
  }
  return newest;
}

v1::Fault ShardBehind(absl::string_view expected, absl::string_view found) {
  return MakeFault(
      "SHARD_BEHIND", expected,
      absl::StrCat(found, "; this directory is an older copy, or parts of it "
                          "are gone"));
}

}  // namespace

void ShardMachine::OnPlan(const v1::ServerRunPlan& plan) {
  if (plan.run_epoch() < run_epoch_ || plan.run_epoch() <= failed_run_epoch_ ||
      NeedsRestore(plan)) {
    return;
  }
  plan_fault_ = FindPlanFault(plan);
  if (plan_fault_.has_value()) return;
  if (std::optional<v1::Fault> behind = FindMissing(plan)) {
    return OnFault(*std::move(behind));
  }
  has_plan_ = true;
  unplanned_ = false;
  run_epoch_ = plan.run_epoch();
  if (IsKnownRun(plan.run_uid())) run_uid_ = plan.run_uid();
  plan_ = plan;
  CheckVersion0();
}

bool ShardMachine::NeedsRestore(const v1::ServerRunPlan& plan) const {
  return plan.has_restored() &&
         plan.run_epoch() > std::max(run_epoch_, failed_run_epoch_) &&
         !FindOtherRun(run_uid_, plan.run_uid()).has_value() &&
         plan.layout_fingerprint() == shape_.layout_fingerprint;
}

std::optional<v1::Fault> ShardMachine::FindPlanFault(
    const v1::ServerRunPlan& plan) const {
  if (std::optional<v1::Fault> other = FindOtherRun(run_uid_, plan.run_uid())) {
    return other;
  }
  if (plan.layout_fingerprint() != shape_.layout_fingerprint) {
    return MakeFault(
        "OTHER_RUN",
        absl::StrCat("layout ", shape_.layout_fingerprint,
                     ", with which this shard was created"),
        absl::StrCat("layout ", plan.layout_fingerprint(), " in the plan"));
  }
  if (NewestCommit(plan) < applied_commit_seq_) {
    return MakeFault(
        "PLAN_BEHIND",
        absl::StrCat("commit ", applied_commit_seq_, ", which this shard has"),
        absl::StrCat("commit ", NewestCommit(plan),
                     " as the newest of the plan"));
  }
  for (const v1::Commit& commit : plan.commits()) {
    const int32_t f = commit.fragment();
    if (commit.commit_seq() <= applied_commit_seq_ || f < 0 ||
        f >= static_cast<int32_t>(fragments_.size()) ||
        commit.version() > fragments_[f].version) {
      continue;
    }
    return MakeFault(
        "PLAN_BEHIND",
        absl::StrCat("version ", fragments_[f].version, " of fragment ", f,
                     ", which this shard has of commit ", applied_commit_seq_),
        absl::StrCat("version ", commit.version(), " in commit ",
                     commit.commit_seq(), " of the plan"));
  }
  return std::nullopt;
}

std::optional<v1::Fault> ShardMachine::FindMissing(
    const v1::ServerRunPlan& plan) const {
  const std::string found =
      applied_commit_seq_ == 0 && !AllInitialized()
          ? "no version"
          : absl::StrCat("commit ", applied_commit_seq_);
  if (plan.acknowledged_commit_seq() > persisted_commit_seq_) {
    return ShardBehind(absl::StrCat("commit ", plan.acknowledged_commit_seq(),
                                    ", which it has acknowledged"),
                       found);
  }
  std::vector<int64_t> versions;
  for (const Fragment& fragment : fragments_) {
    // Version 0 can be made again, if every commit since is in the plan.
    versions.push_back(std::max<int64_t>(fragment.version, 0));
  }
  int64_t seq = applied_commit_seq_;
  for (const v1::Commit& commit : plan.commits()) {
    if (commit.commit_seq() <= seq) continue;
    if (commit.commit_seq() != seq + 1) {
      return ShardBehind(absl::StrCat("commit ", commit.commit_seq() - 1),
                         found);
    }
    const int32_t f = commit.fragment();
    // NameApplies refuses it.
    if (f < 0 || f >= static_cast<int32_t>(versions.size())) {
      return std::nullopt;
    }
    if (commit.version() != versions[f] + 1) {
      return ShardBehind(
          absl::StrCat("version ", commit.version() - 1, " of fragment ", f,
                       " before commit ", commit.commit_seq()),
          absl::StrCat("version ", versions[f], " of commit ", seq));
    }
    versions[f] = commit.version();
    seq = commit.commit_seq();
  }
  if (seq < NewestCommit(plan)) {
    return ShardBehind(absl::StrCat("commit ", NewestCommit(plan)), found);
  }
  if (!plan.started() || !shape_.import) return std::nullopt;
  for (size_t f = 0; f < fragments_.size(); ++f) {
    if (fragments_[f].version < 0 && !fragments_[f].imported) {
      return ShardBehind(absl::StrCat("the imported version 0 of fragment ", f),
                         "no version");
    }
  }
  return std::nullopt;
}

void ShardMachine::CheckVersion0() {
  if (!plan_.started()) return;
  for (const v1::FragmentVersion& decided : plan_.version0()) {
    const int32_t f = decided.fragment();
    if (f < 0 || f >= static_cast<int32_t>(fragments_.size()) ||
        !shape_.fragments[f].holds_all || fragments_[f].version < 0 ||
        !decided.has_digest()) {
      continue;
    }
    // A directory that began with a restore from the mirror has none.
    if (fragments_[f].version > 0 &&
        fragments_[f].version0_digest == Digest128()) {
      continue;
    }
    const Digest128 digest = Digest128::FromProto(decided.digest());
    if (digest == fragments_[f].version0_digest) continue;
    OnFault(MakeFault(
        "DATA_LOSS",
        absl::StrCat("version 0 of fragment ", f, " with digest ",
                     digest.ToHex()),
        absl::StrCat("digest ", fragments_[f].version0_digest.ToHex())));
  }
}

}  // namespace atl::server
