// The data that a shard frees: decided contributions, old versions, manifests
// and kept contributions of released pins.

#include "server/core/shard_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace atl::server {
namespace {

// Unique for each pin: a later pin may reuse the id.
std::string MakeName(const v1::Pin& pin) {
  return absl::StrCat(pin.pin_id(), "@", pin.commit_seq());
}

}  // namespace

bool ShardMachine::Knows(const ContributionKey& key) const {
  return stored_.count(key) || partial_.count(key) || refused_.count(key) ||
         lost_.count(key);
}

std::set<ContributionKey> ShardMachine::ListCommitted() const {
  std::set<ContributionKey> committed = decided_;
  for (const v1::Commit& commit : plan_.commits()) {
    for (const v1::ContributionOutcome& outcome : commit.outcomes()) {
      committed.insert(ContributionKey::FromProto(outcome.key()));
    }
  }
  return committed;
}

void ShardMachine::AddRevoked(std::vector<ContributionKey>& keys) const {
  if (plan_.revoked_slots().empty()) return;
  const std::set<int32_t> revoked(plan_.revoked_slots().begin(),
                                  plan_.revoked_slots().end());
  std::set<ContributionKey> kept = ListCommitted();
  for (const v1::Seal& seal : plan_.seals()) {
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      kept.insert(ContributionKey::FromProto(sealed.key()));
    }
  }
  const auto add = [&](const ContributionKey& key) {
    if (revoked.count(key.slot) && !key.is_import() && !kept.count(key)) {
      keys.push_back(key);
    }
  };
  for (const auto& [key, fact] : stored_) add(key);
  for (const auto& [key, info] : partial_) add(key);
  for (const auto& [key, fact] : refused_) add(key);
  for (const auto& [key, why] : lost_) add(key);
}

void ShardMachine::NameDrops(std::vector<ShardAction>* actions) {
  ShardAction action{ActionKind::kDrop};
  for (const v1::ContributionOutcome& outcome : plan_.dropped()) {
    const auto key = ContributionKey::FromProto(outcome.key());
    if (decided_.count(key)) continue;  // kPersist frees it.
    if (Knows(key)) action.keys.push_back(key);
  }
  // Contributions that can no longer count. A stored one, however old, waits
  // for its outcome in the plan; plans name none of an older run_epoch.
  for (const auto& [key, info] : partial_) {
    const int64_t oldest =
        fragments_[key.fragment].persisted_version - 1 - shape_.max_staleness;
    if (!decided_.count(key) &&
        (key.run_epoch < run_epoch_ || info.anchor_version() < oldest)) {
      action.keys.push_back(key);
    }
  }
  for (const auto& [key, fact] : stored_) {
    if (!decided_.count(key) && key.run_epoch < run_epoch_) {
      action.keys.push_back(key);
    }
  }
  AddRevoked(action.keys);
  const bool is_cancelled = plan_.run_state() == v1::RUN_STATE_CANCELLED;
  if (is_cancelled || plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    const std::set<ContributionKey> kept = ListCommitted();
    // A completed run still reports the outcome of stored contributions.
    for (const auto& [key, fact] : stored_) {
      if (is_cancelled && !kept.count(key)) action.keys.push_back(key);
    }
    for (const auto& [key, info] : partial_) {
      if (!kept.count(key)) action.keys.push_back(key);
    }
    for (const auto& [key, fact] : refused_) {
      if (is_cancelled && !kept.count(key)) action.keys.push_back(key);
    }
  }
  std::sort(action.keys.begin(), action.keys.end());
  action.keys.erase(std::unique(action.keys.begin(), action.keys.end()),
                    action.keys.end());
  if (action.keys.empty()) return;
  for (const ContributionKey& key : action.keys) Forget(key);
  actions->push_back(std::move(action));
}

void ShardMachine::NameReleases(std::vector<ShardAction>* actions) {
  std::set<std::pair<int32_t, int64_t>> pinned;
  for (const v1::Pin& pin : plan_.pins()) {
    for (const v1::FragmentVersion& version : pin.cut()) {
      pinned.insert({version.fragment(), version.version()});
    }
  }
  for (auto it = held_.begin(); it != held_.end();) {
    const Fragment& fragment = fragments_[it->first];
    const int64_t kept_from = fragment.persisted_version - 1;
    if (it->second >= kept_from || pinned.count(*it) ||
        checkpoints_.Names(it->first, it->second)) {
      ++it;
      continue;
    }
    ShardAction action{ActionKind::kRelease};
    action.fragment = it->first;
    action.version = it->second;
    actions->push_back(std::move(action));
    it = held_.erase(it);
  }
}

void ShardMachine::NameManifests(std::vector<ShardAction>* actions) {
  CheckpointKeeper::Work work = checkpoints_.Next(
      plan_.pins(),
      [this](int32_t f) { return fragments_[f].persisted_version; });
  for (std::string& pin_id : work.to_drop) {
    ShardAction action{ActionKind::kDropManifest};
    action.pin.set_pin_id(std::move(pin_id));
    actions->push_back(std::move(action));
  }
  for (v1::Pin& pin : work.to_write) {
    ShardAction action{ActionKind::kWriteManifest};
    action.pin = std::move(pin);
    actions->push_back(std::move(action));
  }
}

std::optional<v1::Pin> ShardMachine::NextMirror() {
  if (!shape_.mirror || has_stopped()) return std::nullopt;
  return mirror_.Next(plan_.pins(), [this](const std::string& pin_id) {
    return checkpoints_.IsDurable(pin_id);
  });
}

std::string ShardMachine::WhyGivenUp(const v1::Pin& pin) const {
  const auto why = given_up_.find(MakeName(pin));
  return why == given_up_.end() ? "" : why->second;
}

bool ShardMachine::IsKept(int64_t commit_seq) const {
  return std::any_of(
      plan_.pins().begin(), plan_.pins().end(), [&](const v1::Pin& pin) {
        return pin.keep_bytes_max() > 0 && commit_seq >= pin.commit_seq() &&
               (pin.keep_end() == 0 || commit_seq < pin.keep_end()) &&
               given_up_.count(MakeName(pin)) == 0;
      });
}

void ShardMachine::NameKept(std::vector<ShardAction>* actions) {
  if (std::exchange(no_room_, false) && !kept_commits_.empty()) {
    ShardAction action{ActionKind::kGiveUpKept};
    action.reason = "the server's disk was full, and rounds come first";
    for (const v1::Pin& pin : plan_.pins()) {
      if (pin.keep_bytes_max() == 0) continue;
      action.pins.push_back(MakeName(pin));
      given_up_.emplace(MakeName(pin), action.reason);
    }
    action.commit_seqs.assign(kept_commits_.begin(), kept_commits_.end());
    kept_commits_.clear();
    actions->push_back(std::move(action));
  }
  ShardAction action{ActionKind::kDropKept};
  for (auto it = kept_commits_.begin(); it != kept_commits_.end();) {
    if (IsKept(*it)) {
      ++it;
      continue;
    }
    action.commit_seqs.push_back(*it);
    it = kept_commits_.erase(it);
  }
  for (auto it = given_up_.begin(); it != given_up_.end();) {
    const bool is_pinned = std::any_of(
        plan_.pins().begin(), plan_.pins().end(),
        [&](const v1::Pin& pin) { return MakeName(pin) == it->first; });
    if (is_pinned) {
      ++it;
      continue;
    }
    action.pins.push_back(it->first);
    it = given_up_.erase(it);
  }
  if (action.commit_seqs.empty() && action.pins.empty()) return;
  actions->push_back(std::move(action));
}

void ShardMachine::NameDropSpares(std::vector<ShardAction>* actions) {
  const bool has_ended = unplanned_ ||
                         plan_.run_state() == v1::RUN_STATE_COMPLETED ||
                         plan_.run_state() == v1::RUN_STATE_CANCELLED;
  // Freed files become spares.
  const bool frees = std::any_of(
      actions->begin(), actions->end(), [](const ShardAction& action) {
        return action.kind == ActionKind::kDrop ||
               action.kind == ActionKind::kDiscard ||
               action.kind == ActionKind::kPersist ||
               action.kind == ActionKind::kRelease;
      });
  if (!has_ended || frees) spares_dropped_ = false;
  // A version that is still to be made needs a spare.
  if (!has_ended || spares_dropped_ || !to_persist_.empty() ||
      NextCommit() != nullptr) {
    return;
  }
  spares_dropped_ = true;
  actions->push_back({ActionKind::kDropSpares});
}

}  // namespace atl::server
