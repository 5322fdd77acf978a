#include "coordinator/core/outputs/plan_change.h"

namespace atl::coordinator {

void PlanChange::Add(const PlanChange& other) {
  log |= other.log;
  servers |= other.servers;
  members.insert(other.members.begin(), other.members.end());
  all_members |= other.all_members;
  names |= other.names;
  shared |= other.shared;
  all_slots |= other.all_slots;
  slots.insert(other.slots.begin(), other.slots.end());
}

PlanChange ChangeOfAll() {
  return {.log = true,
          .servers = true,
          .all_members = true,
          .shared = true,
          .all_slots = true};
}

PlanChange ChangeBy(const storage::v1::Record& record) {
  switch (record.body_case()) {
    // A member's record may also change which islands evaluate.
    case storage::v1::Record::kMemberSet:
      return {.log = true,
              .servers = true,
              .members = {record.member_set().slot()},
              .shared = true,
              .slots = {record.member_set().slot()}};
    case storage::v1::Record::kOutcomesSet: {
      PlanChange change = {.log = true, .servers = true};
      for (const auto& outcome : record.outcomes_set().outcomes()) {
        change.slots.insert(outcome.key().slot());
      }
      return change;
    }
    case storage::v1::Record::kRoundOpened:
    case storage::v1::Record::kRoundSealed:
    case storage::v1::Record::kRoundCommitted:
    case storage::v1::Record::kRoundAborted:
      return {
          .log = true, .servers = true, .shared = true, .all_slots = true};
    case storage::v1::Record::kRoundJudged:
    case storage::v1::Record::kPinSet:
    case storage::v1::Record::kPinReleased:
      return {.log = true, .servers = true};
    case storage::v1::Record::kEvaluated:
    case storage::v1::Record::kWorkUnpushed:
      return {.log = true};
    default:
      return ChangeOfAll();
  }
}

}  // namespace atl::coordinator
