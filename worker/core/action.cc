#include "worker/core/action.h"

namespace atl::worker {

const char* ActionName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kWait:
      return "wait";
    case ActionKind::kLoadSave:
      return "load_save";
    case ActionKind::kRestoreSave:
      return "restore_save";
    case ActionKind::kResetOptimizer:
      return "reset_optimizer";
    case ActionKind::kPull:
      return "pull";
    case ActionKind::kReportReady:
      return "report_ready";
    case ActionKind::kBeginRound:
      return "begin_round";
    case ActionKind::kTrain:
      return "train";
    case ActionKind::kContribute:
      return "contribute";
    case ActionKind::kSave:
      return "save";
    case ActionKind::kPush:
      return "push";
    case ActionKind::kApply:
      return "apply";
    case ActionKind::kEvaluate:
      return "evaluate";
    case ActionKind::kLeave:
      return "leave";
    case ActionKind::kFinish:
      return "finish";
  }
  return "unknown";
}

}  // namespace atl::worker
