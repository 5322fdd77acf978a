// Recovers an island from a step that was not finite: the island drops its
// local parameters and evaluates the anchors.
//
//   finite      it begins again from them; the third time in a row, with no
//               merged contribution between, it leaves the run
//   not finite  the model is at fault, not the island: it waits for a newer
//               version, and evaluates that
//
// Pure. Thread-compatible. IslandLoop drops, evaluates and waits.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"
#include "base/status/not_finite.h"

namespace atl::worker {

class Recovery {
 public:
  // Times in a row after which the island leaves.
  static constexpr int kTimesMax = 3;

  // A step or a contribution failed with `status`, which is NotFinite.
  // `anchors`: their versions if no step was taken from them before, so that a
  // failed step has evaluated them; else empty. Contributions from `next_seq`
  // on come after it.
  void OnNotFinite(const absl::Status& status, std::vector<int64_t> anchors,
                   int64_t next_seq);
  // The local parameters are dropped.
  void OnDropped();
  // The anchors of versions `held` were evaluated, or there is nothing to
  // evaluate on and the next step tells. True: the island begins again.
  bool OnEvaluated(bool is_finite, const std::vector<int64_t>& held);
  // The outcome of this island's contribution `seq`.
  void OnOutcome(int64_t seq, v1::Outcome outcome);

  // Local parameters must be dropped before anything is trained or evaluated.
  bool drop_due() const { return state_ == State::kDrop; }
  // The island may not train until all of its anchors are as new as the run.
  bool is_held() const { return state_ != State::kNone; }
  // The anchors of versions `held` must be evaluated now.
  bool EvaluationDue(const std::vector<int64_t>& held) const;
  // Returns why it waits, for people and the coordinator.
  std::string hindrance() const;
  // OK, or why the island must leave.
  absl::Status leave() const;

 private:
  enum class State { kNone, kDrop, kEvaluate, kBroken };

  State state_ = State::kNone;
  int count_ = 0;         // Times that it began again, or would have.
  int64_t next_seq_ = 0;  // First seq after the newest failure.
  bool was_broken_ = false;  // The model was at fault before this evaluation.
  std::string message_;      // The newest failure's message.
  // Versions of anchors that are not finite; empty: none is known.
  std::vector<int64_t> broken_;
};

}  // namespace atl::worker
