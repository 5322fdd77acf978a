#include "coordinator/core/outputs/run_events.h"

namespace atl::coordinator {

std::optional<v1::RunEvent> ToEvent(const storage::v1::Record& record) {
  v1::RunEvent event;
  event.set_revision(record.revision());
  *event.mutable_time() = record.time();
  switch (record.body_case()) {
    case storage::v1::Record::kRunCreated:
      event.mutable_run_state_changed()->set_state(v1::RUN_STATE_STARTING);
      return event;
    case storage::v1::Record::kRunStateSet:
      event.mutable_run_state_changed()->set_state(
          record.run_state_set().state());
      event.mutable_run_state_changed()->set_reason(
          record.run_state_set().reason());
      return event;
    case storage::v1::Record::kMemberSet: {
      v1::IslandChanged& changed = *event.mutable_island_changed();
      changed.set_island_id(record.member_set().island_id());
      changed.set_slot(record.member_set().slot());
      changed.set_island_epoch(record.member_set().island_epoch());
      changed.set_state(record.member_set().state());
      return event;
    }
    case storage::v1::Record::kRoundOpened:
      *event.mutable_round_opened()->mutable_round() = record.round_opened();
      return event;
    case storage::v1::Record::kRoundSealed:
      *event.mutable_round_sealed() = record.round_sealed().seal();
      return event;
    case storage::v1::Record::kRoundCommitted:
      *event.mutable_round_committed() = record.round_committed().round();
      return event;
    case storage::v1::Record::kRoundAborted: {
      v1::RoundAborted& aborted = *event.mutable_round_aborted();
      aborted.set_fragment(record.round_aborted().fragment());
      aborted.set_version(record.round_aborted().version());
      aborted.set_attempt(record.round_aborted().attempt());
      aborted.set_reason(record.round_aborted().reason());
      return event;
    }
    case storage::v1::Record::kPinSet:
      *event.mutable_pin_changed()->mutable_pin() = record.pin_set().pin();
      return event;
    case storage::v1::Record::kPinReleased:
      event.mutable_pin_changed()->mutable_pin()->set_pin_id(
          record.pin_released().pin_id());
      event.mutable_pin_changed()->set_released(true);
      return event;
    case storage::v1::Record::kEvaluated:
      *event.mutable_evaluated() = record.evaluated().evaluation();
      return event;
    case storage::v1::Record::kRunPlaced:
    case storage::v1::Record::kRunStarted:
    case storage::v1::Record::kRoundJudged:
    case storage::v1::Record::kOutcomesSet:
    case storage::v1::Record::kCoordinatorStarted:
    case storage::v1::Record::kServerSet:
    case storage::v1::Record::kRunDeleted:
    case storage::v1::Record::kRunForgotten:
    case storage::v1::Record::kTokenSet:
    case storage::v1::Record::kTokenForgotten:
    case storage::v1::Record::kIdentitySet:
    case storage::v1::Record::kIdentityForgotten:
    case storage::v1::Record::kAudited:
    case storage::v1::Record::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace atl::coordinator
