#include "server/core/blocked_reasons.h"

#include <algorithm>

#include "base/status/cut_utf8.h"

namespace atl::server {
namespace {

constexpr size_t kReasonBytesMax = 512;

bool IsA(const BlockedReasons::Cause& cause, ActionKind kind) {
  return cause.kind == static_cast<int>(kind);
}

}  // namespace

BlockedReasons::Cause BlockedReasons::ToCause(const ShardAction& action) {
  return {static_cast<int>(action.kind), action.fragment, 0,
          action.pin.pin_id()};
}

bool BlockedReasons::Note(const Cause& cause, absl::string_view reason) {
  std::string cut(CutUtf8(reason, kReasonBytesMax));
  std::string& noted = reasons_[cause];
  if (noted == cut) return false;
  noted = std::move(cut);
  return true;
}

void BlockedReasons::OnPrepared(int32_t fragment) {
  for (const ActionKind kind : {ActionKind::kMeasure, ActionKind::kLiveMerge}) {
    reasons_.erase({static_cast<int>(kind), fragment});
  }
}

void BlockedReasons::Forget(const v1::ServerRunPlan& plan) {
  const bool has_ended = plan.run_state() == v1::RUN_STATE_COMPLETED ||
                         plan.run_state() == v1::RUN_STATE_CANCELLED;
  const auto has_pin = [&](const std::string& pin_id) {
    return std::any_of(
        plan.pins().begin(), plan.pins().end(),
        [&](const v1::Pin& pin) { return pin.pin_id() == pin_id; });
  };
  const auto merges = [&](int32_t fragment) {
    return std::any_of(
        plan.seals().begin(), plan.seals().end(),
        [&](const v1::Seal& seal) { return seal.fragment() == fragment; });
  };
  const auto takes = [&](int32_t fragment) {
    return merges(fragment) ||
           std::any_of(plan.open_rounds().begin(), plan.open_rounds().end(),
                       [&](const v1::OpenRound& open) {
                         return open.fragment() == fragment;
                       });
  };
  const bool copies =
      std::any_of(plan.pins().begin(), plan.pins().end(),
                  [](const v1::Pin& pin) {
                    return pin.checkpoint() && !pin.has_mirror();
                  });
  std::erase_if(reasons_, [&](const auto& entry) {
    const Cause& cause = entry.first;
    if (cause.kind == Cause::kMirror) return !copies;
    if (IsA(cause, ActionKind::kPrepare) || IsA(cause, ActionKind::kMeasure)) {
      return !merges(cause.fragment);
    }
    // An active run takes contributions in its rounds only; imports come before
    // the first round.
    if (cause.kind == Cause::kTakeContributions &&
        plan.run_state() == v1::RUN_STATE_ACTIVE && !takes(cause.fragment)) {
      return true;
    }
    if (!cause.pin_id.empty() && !has_pin(cause.pin_id)) return true;
    // A run that has ended still persists its last commits, serves its
    // versions and writes its checkpoints.
    return has_ended && cause.pin_id.empty() &&
           !IsA(cause, ActionKind::kPersist) &&
           cause.kind != Cause::kReadVersion;
  });
}

std::string BlockedReasons::First() const {
  return reasons_.empty() ? std::string() : reasons_.begin()->second;
}

}  // namespace atl::server
