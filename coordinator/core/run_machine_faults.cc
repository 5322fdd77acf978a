// The faults that stop a run, and the calls that it still answers then.

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/layout/ids.h"
#include "base/layout/weight_unit.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/rounds/recalls.h"
#include "coordinator/core/run_machine.h"

namespace atl::coordinator {
namespace {

// An island whose frozen parameters are not those of `digest`: a member, or one
// whose contributions were merged. Null: none is known. A volunteer's claim
// excludes no other island, and neither does the claim of an island that an
// operator has removed.
const Member* FindOtherFrozen(const RunState& state,
                              const std::string& island_id,
                              const std::string& digest) {
  if (digest.empty()) return nullptr;
  for (const Member& member : state.members()) {
    const std::string& theirs = member.record.capabilities().frozen_digest();
    if (theirs.empty() || theirs == digest || member.removed() ||
        member.enrolled()) {
      continue;
    }
    const bool is_own = member.record.island_id() == island_id;
    if (member.merged_count > 0 || (member.present() && !is_own)) {
      return &member;
    }
  }
  return nullptr;
}

}  // namespace

void RunMachine::Freeze(const v1::Fault& fault, absl::Status refusal) {
  frozen_fault_ = fault;
  refusal_ = std::move(refusal);
  plan_change_ = ChangeOfAll();
}

absl::Status RunMachine::TakeFrozen(const RunEvent& event, RunAnswer& answer) {
  if (const auto* recovered = std::get_if<event::Recovered>(&event)) {
    return Take(*recovered, answer);
  }
  if (const auto* asked = std::get_if<event::Export>(&event)) {
    return ReadCut(asked->request, answer);
  }
  return refusal_;
}

absl::Status RunMachine::ReadCut(const v1::ExportCheckpointRequest& request,
                                 RunAnswer& answer) const {
  RETURN_IF_ERROR(CheckId("pin_id", request.pin_id()));
  const auto held = state_.pins().find(request.pin_id());
  if (request.release()) {
    return held == state_.pins().end() ? absl::OkStatus() : refusal_;
  }
  if (request.keep_bytes_max() != 0) return refusal_;
  if (held != state_.pins().end()) {
    *answer.exported.mutable_pin() = held->second.pin_set().pin();
    return absl::OkStatus();
  }
  if (!state_.started() || IsCheckpointId(request.pin_id())) return refusal_;
  // Servers get no plan now, so none discards the newest cut.
  *answer.exported.mutable_pin() =
      MakePin(request.pin_id(), /*checkpoint=*/false);
  return absl::OkStatus();
}

std::string RunMachine::ReadCommand() const {
  const v1::Pin* newest = nullptr;
  for (const auto& [pin_id, state] : state_.pins()) {
    const v1::Pin& pin = state.pin_set().pin();
    if (pin.checkpoint() &&
        (newest == nullptr || pin.commit_seq() > newest->commit_seq())) {
      newest = &pin;
    }
  }
  // Servers may have discarded the cut that an older log has as its newest.
  if (newest == nullptr) return absl::StrCat("atoll run show ", state_.run_id());
  return absl::StrCat("atoll run export ", state_.run_id(), " --checkpoint ",
                      newest->pin_id(), " --output ", state_.run_id());
}

std::optional<v1::Fault> RunMachine::fault() const {
  std::optional<v1::Fault> fault;
  if (!refusal_.ok()) {
    fault = frozen_fault_;
    fault->set_next_command(ReadCommand());
    return fault;
  }
  const bool waits_for_servers =
      state_.server_ids().empty() && !state_.ended();
  const v1::Fault* refused =
      waits_for_servers ? servers_.FindRefusal("") : nullptr;
  std::string refused_id;
  for (const std::string& server_id : state_.server_ids()) {
    if (refused != nullptr) break;
    refused = servers_.FindRefusal(server_id);
    if (refused != nullptr) refused_id = server_id;
  }
  if (refused != nullptr) {
    fault = *refused;
    if (!refused_id.empty() && (fault->code() == "OTHER_DIRECTORY" ||
                                fault->code() == "STALE_INCARNATION")) {
      fault->set_expected(absl::StrCat(fault->expected(), ", as server ",
                                       refused_id));
      fault->set_next_command(
          absl::StrCat("atoll server replace ", refused_id));
    }
  } else {
    fault = FindShardFault(state_, observed_);
  }
  if (!fault.has_value() || !fault->next_command().empty()) return fault;
  const bool has_lost =
      (fault->code() == "SHARD_BEHIND" || fault->code() == "DATA_LOSS") &&
      state_.state() != v1::RUN_STATE_CANCELLED;
  const v1::Pin* const kept = has_lost ? FindDurableCheckpoint() : nullptr;
  fault->set_next_command(
      kept == nullptr ? absl::StrCat("atoll run show ", state_.run_id())
                      : absl::StrCat("atoll run restore ", state_.run_id(),
                                     " --from ", kept->pin_id()));
  return fault;
}

std::string RunMachine::DescribeMissing(uint64_t features) {
  if (!required_features_.has_value()) {
    required_features_ = RequiredFeatures(state_.spec());
  }
  return DescribeFeatures(*required_features_ & ~PeerFeatures(features));
}

absl::Status RunMachine::CheckJoin(const v1::JoinRequest& request) {
  if (!request.run_uid().empty() && request.run_uid() != state_.run_uid()) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
        absl::StrCat("the island's local checkpoint is of another run with the "
                     "id ",
                     state_.run_id(), ": it has run_uid ", request.run_uid(),
                     ", the run has ", state_.run_uid(),
                     ": give the island a --dir of its own for this run"));
  }
  const std::string missing =
      DescribeMissing(request.capabilities().features());
  if (!missing.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "MISSING_FEATURES",
                  absl::StrCat("the island's program lacks features that the "
                               "run needs: ",
                               missing, ": upgrade the program"));
  }
  const v1::WeightUnit unit = WeightUnitOf(state_.spec().weight_unit());
  const v1::WeightUnit counted =
      WeightUnitOf(request.capabilities().weight_unit());
  if (counted != unit) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "OTHER_WEIGHT_UNIT",
        absl::StrCat("the island counts ", WeightUnitName(counted),
                     ", and the run weighs contributions by ",
                     WeightUnitName(unit), ": let its trainer count ",
                     WeightUnitName(unit),
                     ", or create a run with this weight_unit"));
  }
  const std::string& fingerprint = state_.spec().data().fingerprint();
  if (!fingerprint.empty() &&
      request.capabilities().data_fingerprint() != fingerprint) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_DATA",
                  absl::StrCat("the island's data set has fingerprint \"",
                               request.capabilities().data_fingerprint(),
                               "\", the run's has \"", fingerprint,
                               "\": use the same files"));
  }
  const std::string& frozen = request.capabilities().frozen_digest();
  const Member* const other =
      FindOtherFrozen(state_, request.island_id(), frozen);
  if (other != nullptr) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "OTHER_FROZEN",
        absl::StrCat("the parameters that island ", request.island_id(),
                     " does not train have the digest ", frozen,
                     ", and those of island ", other->record.island_id(), " ",
                     other->record.capabilities().frozen_digest(),
                     ": all islands need the same frozen parameters, of one "
                     "checkpoint or seed and one dtype. If only their storage "
                     "differs, all islands turn the check off "
                     "(check_frozen=False)"));
  }
  return absl::OkStatus();
}

}  // namespace atl::coordinator
