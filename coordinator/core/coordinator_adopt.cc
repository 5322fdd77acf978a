// Continues runs of the mirror that this cluster does not have.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/state/mirrored_run.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::coordinator {
namespace {

// The record of the run that continues from the manifest.
absl::StatusOr<storage::v1::RunCreated> MakeCreated(
    const storage::v1::MirrorManifest& manifest, int32_t server_count,
    absl::Time now, const ReachedNumbers& reached) {
  if (reached.run_epoch < 0 || reached.run_epoch > kSeqJump) {
    return InvalidFields({{"reached_run_epoch", "is out of range"}});
  }
  if (reached.commit_seq < 0 || reached.commit_seq > INT64_MAX / 2) {
    return InvalidFields({{"reached_commit_seq", "is out of range"}});
  }
  absl::StatusOr<storage::v1::RunCreated> created =
      ContinueRun(manifest, now, reached);
  if (!created.ok()) {
    return InvalidFields(
        {{"manifest", std::string(created.status().message())}});
  }
  if (server_count != 0) {
    created->mutable_spec()->set_server_count(server_count);
  }
  const std::vector<FieldViolation> violations = ValidateSpec(created->spec());
  if (!violations.empty()) return InvalidFields(violations);
  return created;
}

// True if an earlier call made `state` of `created`, or of the run's own copy of
// that checkpoint, and no commit followed. The epochs differ: the earlier call
// is an owner in the mirror by now.
bool IsAdopted(const RunState& state, const storage::v1::RunCreated& created) {
  if (!state.just_restored()) return false;
  const v1::Restore& is = state.restores().back();
  const storage::v1::MirroredRun& asked = created.mirrored();
  return is.run_epoch() <= asked.restore().run_epoch() &&
         is.cut_commit_seq() == asked.restore().cut_commit_seq() &&
         is.pin_id() == asked.restore().pin_id() &&
         std::equal(state.restored_cut().begin(), state.restored_cut().end(),
                    asked.pin().cut().begin(), asked.pin().cut().end(),
                    google::protobuf::util::MessageDifferencer::Equals) &&
         state.spec().server_count() == created.spec().server_count();
}

}  // namespace

absl::StatusOr<v1::AdoptRunResponse> Coordinator::AdoptRun(
    const storage::v1::MirrorManifest& manifest, int32_t server_count,
    absl::Time now, const ReachedNumbers& reached) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(const storage::v1::RunCreated created,
                   MakeCreated(manifest, server_count, now, reached));
  if (!options_.has_mirror) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_MIRROR",
                  "this coordinator has no mirror, from which the run would "
                  "continue: start it and its servers with --mirror URL");
  }
  const std::string& run_id = created.run_id();
  v1::AdoptRunResponse response;
  const auto old = runs_.find(run_id);
  if (old != runs_.end()) {
    const RunState& state = old->second->state();
    if (state.run_uid() != created.run_uid()) {
      return Refuse(absl::StatusCode::kAlreadyExists, "RUN_EXISTS",
                    absl::StrCat("the cluster has another run ", run_id,
                                 ", with run_uid ", state.run_uid(),
                                 ": end and delete it first, or continue the "
                                 "run in another cluster"));
    }
    if (!IsAdopted(state, created)) {
      return Refuse(
          absl::StatusCode::kAlreadyExists, "RUN_EXISTS",
          absl::StrCat("the cluster has run ", run_id,
                       ", which went on since, or began elsewhere or with "
                       "another server_count: `atoll run restore ",
                       run_id, "` takes it back in place"));
    }
    *response.mutable_run() = BuildRun(*old->second, /*with_tensors=*/true);
    return response;
  }
  // Servers would take the run's new files for those of the deleted one.
  if (deleted_.Find(run_id, created.run_uid()) != nullptr) {
    return RefuseForNow(
        absl::StatusCode::kUnavailable, "RUN_DELETING",
        absl::StrCat("servers have not deleted their files of run ", run_id,
                     " yet, which was deleted here: `atoll run delete ",
                     run_id, "` names them"),
        absl::Seconds(1));
  }
  if (runs_.size() >= kRunsMax) return TooManyRuns();
  std::unique_ptr<RunMachine> run = MakeMachine(run_id);
  RETURN_IF_ERROR(run->Step(event::Adopt{created}, now).status());
  *response.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
  response.set_changed(true);
  runs_[run_id] = std::move(run);
  return response;
}

}  // namespace atl::coordinator
