#include "coordinator/client/island_control_client.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "coordinator/client/log_seen.h"
#include "coordinator/client/plan_watch.h"
#include "grpcpp/channel.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);

using Islands = v1::IslandService::Stub;
using IslandPlanWatch = PlanWatch<v1::WatchPlanResponse, v1::IslandPlan>;

// The member that the last Join made.
struct Membership {
  std::string run_id;
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session;  // Hex.
  std::shared_ptr<IslandPlanWatch> watch;
};

class GrpcIslandControlClient : public IslandControlClient {
 public:
  GrpcIslandControlClient(const IslandControlClientOptions& options,
                          std::unique_ptr<rpc::Dialer> dialer)
      : options_(options), dialer_(std::move(dialer)) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    rpc::CallOptions call = Options(kTimeout, "");
    if (options_.on_join_waiting) {
      call.on_slow = [&] { options_.on_join_waiting(call.peer); };
    }
    log_seen_.Note(request.log_seen());
    v1::JoinRequest sent = request;
    log_seen_.AddTo(sent);
    ASSIGN_OR_RETURN(v1::JoinResponse response,
                     rpc::Call(*Stub(), &Islands::Join, sent, call));
    log_seen_.Note(response.plan().log());
    auto member = std::make_shared<Membership>();
    member->run_id = request.run_id();
    member->island_id = request.island_id();
    member->island_epoch = response.island_epoch();
    member->session = rpc::ToHex(response.session_secret());
    member->watch = MakeWatch(*member);
    MutexLock lock(&mutex_);
    // The old watch, if any, ends outside the lock with its last reference.
    std::swap(member_, member);
    return response;
  }

  absl::Status ReportReady(int64_t commit_seq) override {
    ASSIGN_OR_RETURN(const auto member, Member());
    auto request = For<v1::ReportReadyRequest>(*member);
    request.set_commit_seq(commit_seq);
    return rpc::Call(*Stub(), &Islands::ReportReady, request,
                     Options(kTimeout, member->session))
        .status();
  }

  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) override {
    ASSIGN_OR_RETURN(const auto member, Member());
    Fill(*member, request);
    return rpc::Call(*Stub(), &Islands::Heartbeat, request,
                     Options(kHeartbeatTimeout, member->session));
  }

  absl::StatusOr<v1::IslandPlan> WaitForPlan(const PlanPosition& after,
                                             absl::Duration timeout,
                                             std::stop_token stop) override {
    const absl::Time deadline = absl::Now() + timeout;
    ASSIGN_OR_RETURN(const auto member, Member());
    ASSIGN_OR_RETURN(v1::IslandPlan plan,
                     member->watch->WaitForPlan(after, deadline, stop));
    log_seen_.Note(plan.log());
    return plan;
  }

  absl::Status ReportProgress(v1::ReportProgressRequest progress) override {
    ASSIGN_OR_RETURN(const auto member, Member());
    Fill(*member, progress);
    return rpc::Call(*Stub(), &Islands::ReportProgress, progress,
                     Options(kTimeout, member->session))
        .status();
  }

  absl::Status Leave(v1::LeaveRequest leave) override {
    ASSIGN_OR_RETURN(auto member, Member());
    {
      MutexLock lock(&mutex_);
      if (member_ == member) member_.reset();
    }
    leave.MergeFrom(For<v1::LeaveRequest>(*member));
    return rpc::Call(*Stub(), &Islands::Leave, leave,
                     Options(kTimeout, member->session))
        .status();
  }

 private:
  rpc::CallOptions Options(absl::Duration timeout,
                           const std::string& session) const {
    return {timeout, session, absl::StrCat("coordinator ", options_.address)};
  }

  template <typename Request>
  static void Fill(const Membership& member, Request& request) {
    request.set_run_id(member.run_id);
    request.set_island_id(member.island_id);
    request.set_island_epoch(member.island_epoch);
  }
  template <typename Request>
  static Request For(const Membership& member) {
    Request request;
    Fill(member, request);
    return request;
  }

  std::unique_ptr<Islands> Stub() {
    return v1::IslandService::NewStub(dialer_->channel());
  }

  // The dialer and log_seen_ outlive every watch: all belong to this object.
  std::shared_ptr<IslandPlanWatch> MakeWatch(const Membership& member) {
    const auto request = For<v1::WatchPlanRequest>(member);
    return std::make_shared<IslandPlanWatch>(
        [this, request, session = member.session](grpc::ClientContext* context)
            -> std::unique_ptr<
                grpc::ClientReaderInterface<v1::WatchPlanResponse>> {
          context->AddMetadata(rpc::kSessionMetadata, session);
          v1::WatchPlanRequest sent = request;
          log_seen_.AddTo(sent);
          return Stub()->WatchPlan(context, sent);
        });
  }

  absl::StatusOr<std::shared_ptr<Membership>> Member() {
    MutexLock lock(&mutex_);
    if (member_ == nullptr) {
      return absl::FailedPreconditionError("not a member: Join first");
    }
    return member_;
  }

  const IslandControlClientOptions options_;
  const std::unique_ptr<rpc::Dialer> dialer_;
  LogSeen log_seen_;
  Mutex mutex_;
  std::shared_ptr<Membership> member_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<IslandControlClient>> MakeIslandControlClient(
    const IslandControlClientOptions& options) {
  ASSIGN_OR_RETURN(auto dialer,
                   rpc::Dialer::Make(options.address, options.channel));
  return std::make_unique<GrpcIslandControlClient>(options, std::move(dialer));
}

}  // namespace atl::coordinator
