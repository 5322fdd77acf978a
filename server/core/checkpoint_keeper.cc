#include "server/core/checkpoint_keeper.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::server {

CheckpointKeeper::CheckpointKeeper(std::vector<bool> holds,
                                   std::vector<ManifestFact> found)
    : holds_(std::move(holds)) {
  for (ManifestFact& fact : found) {
    Kept& kept = kept_[fact.pin_id];
    kept.state = fact.fault.empty() ? State::kDurable : State::kBroken;
    kept.commit_seq = fact.commit_seq;
    kept.versions = std::move(fact.versions);
    kept.fault = std::move(fact.fault);
  }
}

std::map<int32_t, int64_t> CheckpointKeeper::ToVersions(
    const v1::Pin& pin) const {
  std::map<int32_t, int64_t> versions;
  for (const v1::FragmentVersion& version : pin.cut()) {
    const int32_t f = version.fragment();
    if (f >= 0 && f < static_cast<int32_t>(holds_.size()) && holds_[f]) {
      versions[f] = version.version();
    }
  }
  return versions;
}

CheckpointKeeper::Work CheckpointKeeper::Next(
    const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
    const std::function<int64_t(int32_t)>& persisted) {
  Work work;
  std::set<std::string> wanted;
  for (const v1::Pin& pin : pins) {
    if (!pin.checkpoint()) continue;
    const auto it = kept_.find(pin.pin_id());
    if (it == kept_.end()) {
      Kept& kept = kept_[pin.pin_id()];
      kept.commit_seq = pin.commit_seq();
      kept.versions = ToVersions(pin);
    } else if (it->second.commit_seq != pin.commit_seq() ||
               it->second.versions != ToVersions(pin)) {
      // This name has another cut: drop that first. A restored run keeps the
      // cuts of earlier run_epochs, and gives no commit_seq twice.
      continue;
    }
    wanted.insert(pin.pin_id());
    Kept& kept = kept_[pin.pin_id()];
    const bool is_there = std::all_of(
        kept.versions.begin(), kept.versions.end(), [&](const auto& entry) {
          return persisted(entry.first) >= entry.second;
        });
    if (kept.state != State::kMissing || !is_there) continue;
    kept.state = State::kWriting;
    work.to_write.push_back(pin);
  }
  for (auto it = kept_.begin(); it != kept_.end();) {
    Kept& kept = it->second;
    if (wanted.count(it->first) || kept.state == State::kWriting ||
        kept.state == State::kDropping) {
      ++it;
    } else if (kept.state == State::kMissing) {
      it = kept_.erase(it);
    } else {
      kept.state = State::kDropping;
      work.to_drop.push_back(it->first);
      ++it;
    }
  }
  return work;
}

void CheckpointKeeper::OnWritten(const std::string& pin_id) {
  const auto it = kept_.find(pin_id);
  if (it == kept_.end() || it->second.state != State::kWriting) return;
  it->second.state = State::kDurable;
}

bool CheckpointKeeper::MayPass(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

void CheckpointKeeper::OnFailed(const std::string& pin_id,
                                const absl::Status& status) {
  const auto it = kept_.find(pin_id);
  if (it == kept_.end()) return;
  if (it->second.state == State::kDropping) {
    it->second.state =
        it->second.fault.empty() ? State::kDurable : State::kBroken;
    return;
  }
  if (it->second.state != State::kWriting) return;
  if (MayPass(status)) {
    it->second.state = State::kMissing;
    return;
  }
  it->second.state = State::kBroken;
  it->second.fault = status.ToString();
}

void CheckpointKeeper::OnDamaged(int32_t fragment, int64_t version,
                                 absl::string_view why) {
  for (auto& [pin_id, kept] : kept_) {
    const auto named = kept.versions.find(fragment);
    if (named == kept.versions.end() || named->second != version ||
        kept.state != State::kDurable) {
      continue;
    }
    kept.state = State::kBroken;
    kept.fault = std::string(why);
  }
}

bool CheckpointKeeper::IsDurable(const std::string& pin_id) const {
  const auto kept = kept_.find(pin_id);
  return kept != kept_.end() && kept->second.state == State::kDurable;
}

bool CheckpointKeeper::Names(int32_t fragment, int64_t version) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& entry) {
    const auto named = entry.second.versions.find(fragment);
    return named != entry.second.versions.end() && named->second == version;
  });
}

void CheckpointKeeper::Report(v1::ShardReport* report) const {
  for (const auto& [pin_id, kept] : kept_) {
    if (kept.state != State::kDurable && kept.state != State::kBroken) continue;
    v1::ShardCheckpoint* checkpoint = report->add_checkpoints();
    checkpoint->set_pin_id(pin_id);
    checkpoint->set_commit_seq(kept.commit_seq);
    checkpoint->set_durable(kept.state == State::kDurable);
    if (kept.fault.empty()) continue;
    checkpoint->set_fault(
        absl::StrCat("checkpoint ", pin_id, " is damaged here: ", kept.fault,
                     "; export the newest cut or another checkpoint, or bring "
                     "the file back from a copy and start the server again"));
  }
}

}  // namespace atl::server
