#include "worker/core/island_phase.h"

namespace atl::worker {

v1::IslandPhase FindPhase(const Action& action, const PhaseFacts& facts) {
  switch (action.kind) {
    case ActionKind::kPush:
      return v1::ISLAND_PHASE_UPLOAD;
    case ActionKind::kPull:
      return v1::ISLAND_PHASE_PULL;
    case ActionKind::kWait:
    case ActionKind::kLoadSave:
    case ActionKind::kReportReady:
    case ActionKind::kLeave:
    case ActionKind::kFinish:
      break;
    case ActionKind::kRestoreSave:
    case ActionKind::kResetOptimizer:
    case ActionKind::kBeginRound:
    case ActionKind::kTrain:
    case ActionKind::kContribute:
    case ActionKind::kSave:
    case ActionKind::kApply:
    case ActionKind::kEvaluate:
      return v1::ISLAND_PHASE_TRAIN;
  }
  if (facts.on_hold) return v1::ISLAND_PHASE_PAUSED;
  if (facts.awaits_data) return v1::ISLAND_PHASE_DATA;
  if (facts.pushes) return v1::ISLAND_PHASE_UPLOAD;
  if (facts.pulls) return v1::ISLAND_PHASE_PULL;
  return v1::ISLAND_PHASE_WAIT;
}

std::string PhaseReason(const Action& action) {
  if (!action.hindrance.empty()) return action.hindrance;
  switch (action.kind) {
    case ActionKind::kWait:
    case ActionKind::kPush:
    case ActionKind::kPull:
      return action.reason;
    default:
      return "";
  }
}

}  // namespace atl::worker
