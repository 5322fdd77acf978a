// Async runs: an island waits only for the outcome of its own contribution,
// then continues from the newest version. It ignores other commits.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/layout/run_timing.h"
#include "worker/core/island_loop.h"

namespace atl::worker {

bool IslandLoop::async() const { return IsAsync(spec_.schedule()); }

bool IslandLoop::Obsolete(const AnchoredFragment& at) const {
  const int64_t cut = View().CutVersion(at.fragment);
  return !IsFreshEnough(spec_.schedule(), at.anchor_version, cut) ||
         (async() && View().Ended(at.fragment));
}

bool IslandLoop::DecidedAgainst(const Sync& sync,
                                const Sync::Part& part) const {
  if (!async()) {
    return View().CutVersion(part.at.fragment) == part.at.anchor_version;
  }
  const v1::Outcome outcome = View().FindOutcome(part.at.fragment, sync.seq);
  return outcome == v1::OUTCOME_REJECTED || outcome == v1::OUTCOME_DROPPED;
}

bool IslandLoop::HeldEnough(int32_t fragment) const {
  const int64_t cut = plan_.cut(fragment).version();
  if (!async() || plan_.run_state() == v1::RUN_STATE_COMPLETED ||
      fragment >= static_cast<int32_t>(wanted_.size())) {
    return held_[fragment] == cut;
  }
  return held_[fragment] >= wanted_[fragment];
}

// A commit during a pull starts no other pull: that might never end.
void IslandLoop::NoteWanted() {
  if (!async() || round_.has_value() || sync_.has_value()) {
    wanted_.clear();
    return;
  }
  // Exception: if no version can take a contribution from what is held, every
  // new round would be given up at once, so everything is pulled anew.
  bool is_stale = !wanted_.empty() && wanted_.size() == held_.size();
  for (size_t f = 0; is_stale && f < held_.size(); ++f) {
    is_stale = held_[f] >= wanted_[f] &&
               !IsFreshEnough(spec_.schedule(), held_[f],
                              View().CutVersion(static_cast<int32_t>(f)));
  }
  // A newer version may be finite.
  if (is_stale || recovery_.is_held()) wanted_.clear();
  if (!wanted_.empty()) return;
  for (const v1::FragmentVersion& fragment : plan_.cut()) {
    wanted_.push_back(fragment.version());
  }
}

// The round takes the least of each value in the fragments' plans.
std::optional<IslandLoop::Round> IslandLoop::ChooseAsyncRound() const {
  Round round;
  for (int32_t f = 0; f < plan_.cut_size(); ++f) {
    if (View().Ended(f)) continue;
    const v1::OpenRound* open = View().FindOpen(f, View().CutVersion(f));
    const v1::SlotPlan* slot =
        open == nullptr ? nullptr : View().FindSlot(*open);
    if (slot == nullptr) return std::nullopt;
    const int64_t step_count = std::max<int64_t>(1, slot->step_count());
    if (round.fragments.empty()) {
      round.start_step = slot->start_step();
      round.planned_step_count = step_count;
      round.data_shard = slot->data_shard();
      round.data_begin = slot->data_position();
    }
    round.start_step = std::min(round.start_step, slot->start_step());
    round.planned_step_count = std::min(round.planned_step_count, step_count);
    round.fragments.push_back({f, held_[f]});
  }
  if (round.fragments.empty()) return std::nullopt;
  if (position_.has_value() && position_->first == round.data_shard) {
    round.data_begin = std::max(round.data_begin, position_->second);
  }
  return round;
}

int64_t IslandLoop::EvaluatedVersion() const {
  if (async() && !held_.empty()) return held_[0];
  if (!streaming()) return View().CutVersion(0);
  // Streaming fragments are never all at one version: take the one that all
  // have reached. A token budget may end them at different versions: then the
  // newest names the last cut.
  int64_t least = View().CutVersion(0);
  int64_t newest = View().CutVersion(0);
  for (int32_t f = 1; f < plan_.cut_size(); ++f) {
    least = std::min(least, View().CutVersion(f));
    newest = std::max(newest, View().CutVersion(f));
  }
  return View().AllEnded() ? newest : least;
}

// Versions come faster than an island looks, so turns go by periods: of `count`
// slots, the one with index p mod count evaluates the first version that it
// holds in [p every, (p + 1) every).
bool IslandLoop::AsyncEvaluationDue() const {
  const int64_t every = spec_.evaluation().every_round_count();
  if (evaluators_.empty()) return false;
  const Evaluator& turn = evaluators_.rbegin()->second;
  if (turn.count <= 0 || turn.index < 0) return false;
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    // The version is pulled first if the turn is this island's.
    const int64_t last = View().CutVersion(0);
    return evaluated_version_ < last && last % turn.count == turn.index;
  }
  const int64_t version = EvaluatedVersion();
  if (version <= evaluated_version_ ||
      (View().Ended(0) && version >= View().CutVersion(0))) {
    return false;
  }
  const int64_t newest = version / every;
  const int64_t oldest =
      std::max(evaluated_version_ / every + 1, newest - turn.count + 1);
  for (int64_t period = oldest; period <= newest; ++period) {
    if (period % turn.count == turn.index) return true;
  }
  return false;
}

}  // namespace atl::worker
