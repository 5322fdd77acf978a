#include "server/core/mirror_queue.h"

#include <algorithm>
#include <utility>

namespace atl::server {

bool MirrorQueue::IsDone(const v1::Pin& pin) const {
  const auto done = done_.find(pin.pin_id());
  return done != done_.end() && done->second.commit_seq == pin.commit_seq();
}

std::optional<v1::Pin> MirrorQueue::Next(
    const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
    const std::function<bool(const std::string&)>& is_durable) {
  // The coordinator has recorded the others, or released them.
  std::erase_if(done_, [&](const auto& entry) {
    return std::none_of(pins.begin(), pins.end(), [&](const v1::Pin& pin) {
      return pin.pin_id() == entry.first && !pin.has_mirror() &&
             pin.commit_seq() == entry.second.commit_seq;
    });
  });
  const v1::Pin* newest = nullptr;
  for (const v1::Pin& pin : pins) {
    if (!pin.checkpoint() || pin.has_mirror() || IsDone(pin) ||
        !is_durable(pin.pin_id())) {
      continue;
    }
    if (newest == nullptr || pin.commit_seq() > newest->commit_seq()) {
      newest = &pin;
    }
  }
  const int64_t before =
      std::exchange(newest_, newest == nullptr ? 0 : newest->commit_seq());
  if (newest == nullptr || before == newest_) return std::nullopt;
  return *newest;
}

void MirrorQueue::OnMirrored(const v1::Pin& pin,
                             std::vector<v1::MirroredPart> parts,
                             std::vector<std::string> array_names) {
  done_[pin.pin_id()] = {pin.commit_seq(), std::move(parts),
                         std::move(array_names)};
  if (newest_ == pin.commit_seq()) newest_ = 0;
}

void MirrorQueue::AddTo(v1::ShardCheckpoint& checkpoint) const {
  const auto done = done_.find(checkpoint.pin_id());
  if (done == done_.end() ||
      done->second.commit_seq != checkpoint.commit_seq()) {
    return;
  }
  checkpoint.set_mirrored(true);
  for (const v1::MirroredPart& part : done->second.parts) {
    *checkpoint.add_mirrored_parts() = part;
  }
  for (const std::string& name : done->second.array_names) {
    checkpoint.add_array_names(name);
  }
}

}  // namespace atl::server
