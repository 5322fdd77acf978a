#include "worker/island/meter/phase_meter.h"

#include <algorithm>
#include <utility>

#include "base/time/proto_time.h"

namespace atl::worker {

void PhaseMeter::Began() {
  first_step_begin_ = absl::InfiniteFuture();
  train_begin_.clear();
  EndAll();
}

void PhaseMeter::Stepped(absl::Time begin, absl::Time end) {
  first_step_begin_ = std::min(first_step_begin_, begin);
  for (auto& [fragment, first] : train_begin_) first = std::min(first, begin);
  last_step_end_ = end;
}

PhaseMeter::Sync& PhaseMeter::Open(int64_t seq) {
  if (!open_.contains(seq) && open_.size() == kOpenCountMax) {
    open_.erase(open_.begin());
  }
  return open_[seq];
}

void PhaseMeter::EncodeBegan(
    int64_t seq, const std::vector<AnchoredFragment>& contributions,
    absl::Time now) {
  if (open_.contains(seq)) return;
  // A fragment has one contribution at a time.
  for (auto sync = open_.begin(); sync != open_.end();) {
    const bool has_ended = std::any_of(
        sync->second.parts.begin(), sync->second.parts.end(),
        [&](const Part& part) {
          return std::any_of(contributions.begin(), contributions.end(),
                             [&](const AnchoredFragment& at) {
                               return at.fragment == part.at.fragment;
                             });
        });
    if (has_ended) {
      End(sync++);
    } else {
      ++sync;
    }
  }
  Sync& sync = Open(seq);
  Interval& train = sync.phases[v1::PHASE_TRAIN];
  for (const AnchoredFragment& at : contributions) {
    sync.parts.push_back({at});
    const auto found = train_begin_.find(at.fragment);
    train.begin = std::min(
        train.begin,
        found == train_begin_.end() ? first_step_begin_ : found->second);
    train_begin_[at.fragment] = absl::InfiniteFuture();
  }
  if (train.has_begun()) train.end = last_step_end_;
  sync.phases[v1::PHASE_ENCODE].begin = now;
}

void PhaseMeter::EncodeEnded(int64_t seq, absl::Time now) {
  const auto sync = open_.find(seq);
  if (sync != open_.end()) sync->second.phases[v1::PHASE_ENCODE].end = now;
}

void PhaseMeter::PushBegan(int64_t seq, const AnchoredFragment& at,
                           absl::Time now) {
  Sync& sync = Open(seq);
  if (std::none_of(sync.parts.begin(), sync.parts.end(),
                   [&](const Part& part) { return part.at == at; })) {
    // A previous process made the contribution.
    sync.parts.push_back({at});
  }
  Interval& push = sync.phases[v1::PHASE_PUSH];
  push.begin = std::min(push.begin, now);
}

void PhaseMeter::PushEnded(int64_t seq, int32_t fragment, absl::Time now) {
  const auto found = open_.find(seq);
  if (found == open_.end() || found->second.decided) return;
  Sync& sync = found->second;
  bool all = true;
  for (Part& part : sync.parts) {
    if (part.at.fragment == fragment) part.pushed = true;
    all = all && part.pushed;
  }
  if (all) sync.phases[v1::PHASE_PUSH].end = now;
}

void PhaseMeter::Settle(IsDecided is_decided, absl::Time now) {
  for (auto& [seq, sync] : open_) {
    Interval& push = sync.phases[v1::PHASE_PUSH];
    if (sync.decided || !push.has_begun()) continue;
    sync.decided = std::all_of(
        sync.parts.begin(), sync.parts.end(),
        [&, seq = seq](const Part& part) { return is_decided(part.at, seq); });
    if (!sync.decided) continue;
    if (!push.has_ended()) push.end = now;
    sync.phases[v1::PHASE_WAIT] = {push.end, now};
  }
  EndApplied();
}

void PhaseMeter::Pulled(int32_t fragment, int64_t version, absl::Time begin,
                        absl::Time end) {
  for (auto& [seq, sync] : open_) {
    for (Part& part : sync.parts) {
      if (part.at.fragment != fragment || version <= part.at.anchor_version) {
        continue;
      }
      Interval& apply = sync.phases[v1::PHASE_APPLY];
      apply.begin = std::min(apply.begin, begin);
      if (streaming_) continue;
      apply.end = std::max(apply.end, end);
      part.applied = true;
    }
  }
  EndApplied();
}

void PhaseMeter::Applied(int32_t fragment, int64_t version, absl::Time end) {
  for (auto& [seq, sync] : open_) {
    for (Part& part : sync.parts) {
      if (part.at.fragment != fragment || version <= part.at.anchor_version) {
        continue;
      }
      sync.phases[v1::PHASE_APPLY].end = end;
      part.applied = true;
    }
  }
  EndApplied();
}

void PhaseMeter::EndApplied() {
  for (auto sync = open_.begin(); sync != open_.end();) {
    const std::vector<Part>& parts = sync->second.parts;
    const bool applied =
        std::all_of(parts.begin(), parts.end(),
                    [](const Part& part) { return part.applied; });
    if (sync->second.decided && applied) {
      End(sync++);
    } else {
      ++sync;
    }
  }
}

void PhaseMeter::EndAll() {
  while (!open_.empty()) End(open_.begin());
}

void PhaseMeter::End(Syncs::iterator sync) {
  const auto& phases = sync->second.phases;
  // A contribution that was never encoded: its seq is used again.
  if (phases[v1::PHASE_ENCODE].has_ended() ||
      phases[v1::PHASE_PUSH].has_begun()) {
    v1::SyncPhases ended;
    ended.set_seq(sync->first);
    std::vector<int> order;
    for (int phase = v1::PHASE_TRAIN; phase < v1::Phase_ARRAYSIZE; ++phase) {
      const Interval& of = phases[static_cast<size_t>(phase)];
      if (of.has_begun() && of.has_ended()) order.push_back(phase);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return phases[static_cast<size_t>(a)].begin <
             phases[static_cast<size_t>(b)].begin;
    });
    for (const int phase : order) {
      const Interval& of = phases[static_cast<size_t>(phase)];
      v1::PhaseTime* const time = ended.add_phases();
      time->set_phase(static_cast<v1::Phase>(phase));
      *time->mutable_start_time() = ToProto(of.begin);
      // The machine's clock may have been set back.
      *time->mutable_duration() =
          ToProto(std::max(of.end - of.begin, absl::ZeroDuration()));
    }
    if (ended.phases_size() > 0) ended_.push_back(std::move(ended));
  }
  open_.erase(sync);
}

std::vector<v1::SyncPhases> PhaseMeter::TakeEnded() {
  return std::exchange(ended_, {});
}

}  // namespace atl::worker
