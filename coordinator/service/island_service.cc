#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "atoll/v1/island_service.grpc.pb.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/latest_writer.h"
#include "coordinator/service/services.h"
#include "coordinator/service/shared_answer.h"
#include "coordinator/service/shared_slice.h"
#include "grpcpp/support/byte_buffer.h"
#include "openssl/rand.h"

namespace atl::coordinator {
namespace {

constexpr int kSecretBytes = 32;

absl::StatusOr<std::string> MakeSecret() {
  std::string secret(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()),
                 kSecretBytes) != 1) {
    return absl::UnavailableError("the machine gives no random bytes");
  }
  return secret;
}

template <typename Request>
IslandCredentials ReadCredentials(const grpc::CallbackServerContext& context,
                                  const Request& request) {
  return {request.island_id(), request.island_epoch(), SessionSecret(context)};
}

// Hands the event that `make` returns for the calling member to its run.
template <typename Request, typename Response, typename Make>
grpc::ServerUnaryReactor* StepMember(EventLoop& loop,
                                     grpc::CallbackServerContext* context,
                                     const Request* request, Response* response,
                                     Make make) {
  const absl::Status caller =
      CheckCaller(*context, Role::kIsland, request->island_id());
  if (!caller.ok()) return AnswerError(context, caller);
  return AnswerForRun(
      loop, context, request, response,
      [make, island = ReadCredentials(*context, *request)](
          Coordinator& coordinator, RunMachine& run,
          absl::Time now) -> absl::StatusOr<Response> {
        RETURN_IF_ERROR(run.Step(make(island), now).status());
        if constexpr (std::is_same_v<Response, v1::HeartbeatResponse>) {
          return coordinator.DescribeLease(run);
        }
        return Response();
      });
}

std::deque<grpc::ByteBuffer> ToMessage(EncodedIslandPlan plan) {
  const grpc::Slice parts[] = {grpc::Slice(plan.head), ShareSlice(plan.shared),
                               grpc::Slice(plan.own)};
  return {grpc::ByteBuffer(parts, std::size(parts))};
}

class IslandServiceImpl
    : public v1::IslandService::WithRawCallbackMethod_Join<
          v1::IslandService::WithRawCallbackMethod_WatchPlan<
              v1::IslandService::CallbackService>> {
 public:
  IslandServiceImpl(EventLoop& loop, DataUrlSigner* signer)
      : loop_(loop), signer_(signer) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* bytes,
                                 grpc::ByteBuffer* response) override {
    using JoinAnswer = SpecAnswer<v1::JoinResponse>;
    const auto call = std::make_shared<const RawCall<v1::JoinRequest>>(
        context, *bytes, response);
    if (!call->caller.ok()) return AnswerError(context, call->caller.status());
    absl::Status status =
        CheckCaller(*context, Role::kIsland, call->request.island_id());
    absl::StatusOr<std::string> secret = MakeSecret();
    if (status.ok()) status = secret.status();
    if (!status.ok()) {
      call->Finish(status);
      return call->reactor;
    }
    loop_.Post<JoinAnswer>(
        [call, secret = *std::move(secret)](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<JoinAnswer> {
          const v1::JoinRequest& request = call->request;
          RETURN_IF_ERROR(coordinator.CheckLog(
              request.log_seen(),
              {"island", request.island_id(), request.run_id()}, now));
          ASSIGN_OR_RETURN(RunMachine* const run, call->FindRun(coordinator));
          ASSIGN_OR_RETURN(event::Join join,
                           coordinator.MakeJoin(request, secret,
                                                call->caller->scope, *run));
          ASSIGN_OR_RETURN(RunAnswer answer, run->Step(std::move(join), now));
          v1::JoinResponse& joined = answer.joined;
          *joined.mutable_run() = BuildRunWithoutSpec(*run);
          *joined.mutable_plan() = coordinator.IslandPlan(*run, joined.slot());
          return JoinAnswer{EncodeSpecPart(*run), std::move(joined)};
        },
        [call](absl::StatusOr<JoinAnswer> answer) {
          if (!answer.ok()) return call->Finish(answer.status());
          call->Finish(answer->Encode());
        },
        call->origin);
    return call->reactor;
  }

  grpc::ServerUnaryReactor* ReportReady(
      grpc::CallbackServerContext* context,
      const v1::ReportReadyRequest* request,
      v1::ReportReadyResponse* response) override {
    return StepMember(loop_, context, request, response,
                      [request](const IslandCredentials& island) {
                        return event::Ready{island, request->commit_seq()};
                      });
  }

  grpc::ServerUnaryReactor* Heartbeat(
      grpc::CallbackServerContext* context, const v1::HeartbeatRequest* request,
      v1::HeartbeatResponse* response) override {
    return StepMember(loop_, context, request, response,
                      [request](const IslandCredentials& island) {
                        return event::Heartbeat{island, request};
                      });
  }

  // Its messages share the part that is the same for all islands of a run.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchPlan(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* bytes) override {
    auto writer =
        LatestWriter<grpc::ByteBuffer, EncodedIslandPlan>::Make(ToMessage);
    v1::WatchPlanRequest request;
    absl::Status status;
    if (!rpc::DecodeMessage(*bytes, &request)) {
      status =
          absl::InvalidArgumentError("the request is no WatchPlanRequest");
    }
    const absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
    if (status.ok()) status = caller.status();
    if (status.ok()) {
      status = CheckCaller(*context, Role::kIsland, request.island_id());
    }
    if (status.ok()) {
      loop_.WatchIsland(request.run_id(), ReadCredentials(*context, request),
                        writer, request.log_seen(), ChecksRunFor(*caller),
                        GetOrigin(context, request));
    } else {
      writer->End(status);
    }
    return writer.get();
  }

  grpc::ServerUnaryReactor* ReportProgress(
      grpc::CallbackServerContext* context,
      const v1::ReportProgressRequest* request,
      v1::ReportProgressResponse* response) override {
    return StepMember(loop_, context, request, response,
                      [request](const IslandCredentials& island) {
                        return event::Progress{island, *request};
                      });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override {
    return StepMember(loop_, context, request, response,
                      [request](const IslandCredentials& island) {
                        return event::Leave{island, *request};
                      });
  }

  grpc::ServerUnaryReactor* SignDataUrls(
      grpc::CallbackServerContext* context,
      const v1::SignDataUrlsRequest* request,
      v1::SignDataUrlsResponse* response) override {
    std::vector<std::string> paths(request->paths().begin(),
                                   request->paths().end());
    absl::Status status = CheckDataPaths(paths);
    const absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
    if (status.ok()) status = caller.status();
    if (!status.ok()) return AnswerError(context, status);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const auto answer =
        [reactor, response](absl::StatusOr<v1::SignDataUrlsResponse> made) {
          if (made.ok()) *response = *std::move(made);
          reactor->Finish(rpc::ToGrpc(WithDefaultReason(made.status())));
        };
    loop_.Post<std::string>(
        [request, caller = *caller](Coordinator& coordinator, absl::Time now)
            -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(RunMachine* const run,
                           FindRunFor(coordinator, caller, request->run_id()));
          return run->state().spec().data().url();
        },
        [this, paths = std::move(paths),
         answer](absl::StatusOr<std::string> url) {
          if (url.ok() && signer_ != nullptr) {
            return signer_->Sign(*url, paths, answer);
          }
          answer(url.ok() ? Refuse(absl::StatusCode::kFailedPrecondition,
                                   "NO_SIGNED_URLS",
                                   "this coordinator signs no URLs")
                          : url.status());
        });
    return reactor;
  }

 private:
  EventLoop& loop_;
  DataUrlSigner* const signer_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeIslandService(EventLoop& loop,
                                                 DataUrlSigner* signer) {
  return std::make_unique<IslandServiceImpl>(loop, signer);
}

}  // namespace atl::coordinator
