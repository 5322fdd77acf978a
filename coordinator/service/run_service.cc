#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/mirror/mirror_manifest.h"
#include "base/random_id/random_id.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/services.h"
#include "coordinator/service/shared_answer.h"

namespace atl::coordinator {
namespace {

v1::AuditRecord Describe(absl::string_view action, const std::string& run_id,
                         const std::string& subject = "") {
  v1::AuditRecord record;
  record.set_action(std::string(action));
  record.set_run_id(run_id);
  record.set_subject(subject);
  return record;
}

constexpr size_t kAdoptedManifestBytesMax = 3 << 20;

// INVALID_ARGUMENT: it is no manifest, or is too large.
absl::StatusOr<storage::v1::MirrorManifest> ParseAdopted(
    const std::string& json) {
  if (json.size() > kAdoptedManifestBytesMax) {
    return InvalidFields(
        {{"manifest", "must be at most 3 MiB, without its parts"}});
  }
  absl::StatusOr<storage::v1::MirrorManifest> manifest =
      mirror::ParseManifest(json);
  if (!manifest.ok()) {
    return InvalidFields(
        {{"manifest", std::string(manifest.status().message())}});
  }
  manifest->clear_parts();
  return manifest;
}

// OK if the caller's certificate is for all runs. `not_for`: what one for
// certain runs does not.
absl::Status CheckAllRuns(const grpc::CallbackServerContext& context,
                          absl::string_view not_for) {
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(context));
  if (caller.scope.any) return absl::OkStatus();
  return Refuse(absl::StatusCode::kPermissionDenied, "NOT_YOUR_RUN",
                absl::StrCat("a certificate for certain runs ", not_for));
}

// Hands `event` to a run, audits it as `audit`, and answers with the run's new
// state.
template <typename Request, typename Response, typename Event>
grpc::ServerUnaryReactor* Steer(EventLoop& loop,
                                grpc::CallbackServerContext* context,
                                const Request* request, Response* response,
                                Event event, v1::AuditRecord audit) {
  return AnswerForRun(loop, context, request, response,
                      [=, actor = GetActor(*context)](
                          Coordinator& coordinator, RunMachine& run,
                          absl::Time now) -> absl::StatusOr<Response> {
                        RETURN_IF_ERROR(run.Step(event, now).status());
                        coordinator.Audit(actor, audit, now);
                        Response steered;
                        *steered.mutable_run() =
                            BuildRun(run, /*with_tensors=*/true);
                        return steered;
                      });
}

class RunServiceImpl
    : public v1::RunService::WithRawCallbackMethod_GetRun<
          v1::RunService::WithRawCallbackMethod_ListRuns<
              v1::RunService::WithRawCallbackMethod_ExportCheckpoint<
                  v1::RunService::CallbackService>>> {
 public:
  explicit RunServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* CreateRun(
      grpc::CallbackServerContext* context, const v1::CreateRunRequest* request,
      v1::CreateRunResponse* response) override {
    return Answer<v1::CreateRunResponse>(
        loop_, context, request, response,
        [=, run_uid = RandomId(), actor = GetActor(*context)](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<v1::CreateRunResponse> {
          ASSIGN_OR_RETURN(const v1::CreateRunResponse created,
                           coordinator.CreateRun(*request, now, run_uid));
          if (!request->validate_only() && created.run().run_uid() == run_uid) {
            coordinator.Audit(
                actor, Describe("run.create", request->run_id()), now);
          }
          return created;
        });
  }

  // The spec is sent from the run's own copy, by all calls at once.
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return AnswerShared<v1::GetRunRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, RunMachine& run) {
          return [spec_part = EncodeSpecPart(run),
                  rest = BuildRunAnswer(run, coordinator)] {
            return EncodedItems(rest, spec_part);
          };
        },
        [](const EncodedItems& run, const v1::GetRunRequest&) {
          return run.Whole();
        });
  }

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    const absl::Status caller =
        CheckAllRuns(*context, "lists no runs: name the run");
    if (!caller.ok()) return AnswerError(context, caller);
    return AnswerShared<v1::ListRunsRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, absl::Time) {
          return [runs = coordinator.ListRuns()] {
            const v1::ListRunsResponse list = BuildRuns(runs);
            return EncodedItems(list, list.runs(), [](const v1::Run& run) {
              return run.run_id();
            });
          };
        },
        [](const EncodedItems& list, const v1::ListRunsRequest& asked) {
          return CutPage<v1::ListRunsResponse>(
              list, asked, [&](const v1::ListRunsRequest& request) {
                return PlanRuns(list.names(), request);
              });
        });
  }

  grpc::ServerUnaryReactor* PauseRun(grpc::CallbackServerContext* context,
                                     const v1::PauseRunRequest* request,
                                     v1::PauseRunResponse* response) override {
    return Steer(loop_, context, request, response, event::Pause(),
                 Describe("run.pause", request->run_id()));
  }

  grpc::ServerUnaryReactor* ResumeRun(
      grpc::CallbackServerContext* context, const v1::ResumeRunRequest* request,
      v1::ResumeRunResponse* response) override {
    return Steer(loop_, context, request, response, event::Resume(),
                 Describe("run.resume", request->run_id()));
  }

  grpc::ServerUnaryReactor* CancelRun(
      grpc::CallbackServerContext* context, const v1::CancelRunRequest* request,
      v1::CancelRunResponse* response) override {
    return Steer(loop_, context, request, response, event::Cancel(),
                 Describe("run.cancel", request->run_id()));
  }

  grpc::ServerUnaryReactor* DeleteRun(
      grpc::CallbackServerContext* context, const v1::DeleteRunRequest* request,
      v1::DeleteRunResponse* response) override {
    return Answer<v1::DeleteRunResponse>(
        loop_, context, request, response,
        [=, actor = GetActor(*context)](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<v1::DeleteRunResponse> {
          ASSIGN_OR_RETURN(const v1::DeleteRunResponse deleted,
                           coordinator.DeleteRun(request->run_id(),
                                                 request->run_uid(), now));
          coordinator.Audit(actor, Describe("run.delete", request->run_id()),
                            now);
          return deleted;
        });
  }

  grpc::ServerUnaryReactor* RestoreRun(
      grpc::CallbackServerContext* context,
      const v1::RestoreRunRequest* request,
      v1::RestoreRunResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=, actor = GetActor(*context)](
            Coordinator& coordinator, RunMachine& run,
            absl::Time now) -> absl::StatusOr<v1::RestoreRunResponse> {
          ASSIGN_OR_RETURN(RunAnswer answer,
                           run.Step(event::Restore{*request}, now));
          v1::RestoreRunResponse& restored = answer.restored;
          if (restored.changed()) {
            coordinator.Audit(actor,
                              Describe("run.restore", request->run_id(),
                                       restored.pin().pin_id()),
                              now);
          }
          *restored.mutable_run() = BuildRun(run, /*with_tensors=*/true);
          return std::move(restored);
        });
  }

  grpc::ServerUnaryReactor* AdoptRun(
      grpc::CallbackServerContext* context, const v1::AdoptRunRequest* request,
      v1::AdoptRunResponse* response) override {
    const absl::Status caller =
        CheckAllRuns(*context, "adds no run: use one for all runs");
    if (!caller.ok()) return AnswerError(context, caller);
    absl::StatusOr<storage::v1::MirrorManifest> manifest =
        ParseAdopted(request->manifest());
    if (!manifest.ok()) return AnswerError(context, manifest.status());
    return Answer<v1::AdoptRunResponse>(
        loop_, context, request, response,
        [=, manifest = *std::move(manifest), actor = GetActor(*context)](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<v1::AdoptRunResponse> {
          ASSIGN_OR_RETURN(
              v1::AdoptRunResponse adopted,
              coordinator.AdoptRun(
                  manifest, request->server_count(), now,
                  {.run_epoch = request->reached_run_epoch(),
                   .commit_seq = request->reached_commit_seq()}));
          if (adopted.changed()) {
            const v1::Run& run = adopted.run();
            coordinator.Audit(actor,
                              Describe("run.adopt", run.run_id(),
                                       run.restored().pin_id()),
                              now);
          }
          return adopted;
        });
  }

  grpc::ServerUnaryReactor* ReplaceServer(
      grpc::CallbackServerContext* context,
      const v1::ReplaceServerRequest* request,
      v1::ReplaceServerResponse* response) override {
    const absl::Status caller =
        CheckAllRuns(*context, "replaces no server: use one for all runs");
    if (!caller.ok()) return AnswerError(context, caller);
    return Answer<v1::ReplaceServerResponse>(
        loop_, context, request, response,
        [=, actor = GetActor(*context)](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<v1::ReplaceServerResponse> {
          ASSIGN_OR_RETURN(const v1::ReplaceServerResponse replaced,
                           coordinator.ReplaceServer(*request, now));
          if (replaced.changed()) {
            v1::AuditRecord audit =
                Describe("server.replace", "", request->server_id());
            audit.set_detail(request->with_server_id());
            coordinator.Audit(actor, audit, now);
          }
          return replaced;
        });
  }

  grpc::ServerUnaryReactor* RemoveIsland(
      grpc::CallbackServerContext* context,
      const v1::RemoveIslandRequest* request,
      v1::RemoveIslandResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=, actor = GetActor(*context)](
            Coordinator& coordinator, RunMachine& run,
            absl::Time now) -> absl::StatusOr<v1::RemoveIslandResponse> {
          const std::string& id = request->island_id();
          if (request->readmit()) {
            RETURN_IF_ERROR(coordinator.CheckReadmission(id, run));
          }
          const event::RemoveIsland remove{id, request->readmit()};
          RETURN_IF_ERROR(run.Step(remove, now).status());
          coordinator.Audit(
              actor,
              Describe(request->readmit() ? "island.readmit" : "island.remove",
                       request->run_id(), id),
              now);
          v1::RemoveIslandResponse removed;
          *removed.mutable_run() = BuildRun(run, /*with_tensors=*/true);
          return removed;
        });
  }

  grpc::ServerUnaryReactor* ExportCheckpoint(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
      grpc::ByteBuffer* response) override {
    using Exported = SpecAnswer<v1::ExportCheckpointResponse>;
    const auto call =
        std::make_shared<const RawCall<v1::ExportCheckpointRequest>>(
            context, *bytes, response);
    if (!call->caller.ok()) return AnswerError(context, call->caller.status());
    loop_.Post<Exported>(
        [call](Coordinator& coordinator,
               absl::Time now) -> absl::StatusOr<Exported> {
          ASSIGN_OR_RETURN(RunMachine* const run, call->FindRun(coordinator));
          ASSIGN_OR_RETURN(RunAnswer answer,
                           run->Step(event::Export{call->request}, now));
          v1::ExportCheckpointResponse& pinned = answer.exported;
          if (call->request.release()) return Exported{nullptr, pinned};
          *pinned.mutable_run() = BuildRunWithoutSpec(*run);
          *pinned.mutable_shards() = BuildPlacement(run->state(), coordinator);
          pinned.set_placement_epoch(run->state().placement_epoch());
          return Exported{EncodeSpecPart(*run), std::move(pinned)};
        },
        [call](absl::StatusOr<Exported> answer) {
          if (!answer.ok()) return call->Finish(answer.status());
          call->Finish(answer->Encode());
        },
        call->origin);
    return call->reactor;
  }

 private:
  EventLoop& loop_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRunService(EventLoop& loop) {
  return std::make_unique<RunServiceImpl>(loop);
}

}  // namespace atl::coordinator
