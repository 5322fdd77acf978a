#include "worker/core/recovery.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::worker {

void Recovery::OnNotFinite(const absl::Status& status,
                           std::vector<int64_t> anchors, int64_t next_seq) {
  state_ = State::kDrop;
  next_seq_ = next_seq;
  was_broken_ = false;
  broken_.clear();
  if (FindNotFinite(status) == NotFiniteOf::kStep) broken_ = std::move(anchors);
  message_ = std::string(status.message());
}

void Recovery::OnDropped() {
  state_ = broken_.empty() ? State::kEvaluate : State::kBroken;
  was_broken_ = state_ == State::kBroken;
}

bool Recovery::OnEvaluated(bool is_finite, const std::vector<int64_t>& held) {
  if (!is_finite) {
    state_ = State::kBroken;
    was_broken_ = true;
    broken_ = held;
    return false;
  }
  state_ = State::kNone;
  // A model that was at fault is no failure of this island.
  if (!was_broken_) ++count_;
  was_broken_ = false;
  return true;
}

void Recovery::OnOutcome(int64_t seq, v1::Outcome outcome) {
  if (outcome == v1::OUTCOME_MERGED && seq >= next_seq_) count_ = 0;
}

bool Recovery::EvaluationDue(const std::vector<int64_t>& held) const {
  return state_ == State::kEvaluate ||
         (state_ == State::kBroken && held != broken_);
}

std::string Recovery::hindrance() const {
  if (state_ != State::kBroken) return "";
  return absl::StrCat(
      "loss or gradient of version ", broken_.empty() ? 0 : broken_.front(),
      " is not finite here; waits for a newer version");
}

absl::Status Recovery::leave() const {
  if (count_ < kTimesMax) return absl::OkStatus();
  return NotFinite(
      NotFiniteOf::kOther,
      absl::InternalError(absl::StrCat(
          "training was not finite ", count_,
          " times in a row, each time from a finite version of the run: ",
          message_)));
}

}  // namespace atl::worker
