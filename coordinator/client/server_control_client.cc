#include "coordinator/client/server_control_client.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "base/features/features.h"
#include "base/rpc/call.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "coordinator/client/plan_parts.h"
#include "coordinator/client/plan_watch.h"
#include "grpcpp/channel.h"

namespace atl::coordinator {
namespace {

using Servers = v1::ServerService::Stub;
using ServerPlanWatch = PlanWatch<v1::WatchServerPlanResponse, v1::ServerPlan>;

// Reads whole plans from a stream that may send them in parts, and without what
// has not changed.
class WholePlans
    : public grpc::ClientReaderInterface<v1::WatchServerPlanResponse> {
 public:
  WholePlans(
      std::unique_ptr<grpc::ClientReaderInterface<v1::WatchServerPlanResponse>>
          parts,
      grpc::ClientContext* context)
      : parts_(std::move(parts)), context_(context) {}

  bool Read(v1::WatchServerPlanResponse* response) override {
    v1::WatchServerPlanResponse part;
    while (parts_->Read(&part)) {
      absl::StatusOr<std::optional<v1::ServerPlan>> plan =
          joiner_.Add(std::move(part));
      if (!plan.ok()) {
        // The watch opens another stream.
        context_->TryCancel();
        return false;
      }
      if (plan->has_value()) {
        *response->mutable_plan() = **std::move(plan);
        return true;
      }
      part.Clear();
    }
    return false;
  }
  bool NextMessageSize(uint32_t* size) override {
    return parts_->NextMessageSize(size);
  }
  void WaitForInitialMetadata() override { parts_->WaitForInitialMetadata(); }
  grpc::Status Finish() override { return parts_->Finish(); }

 private:
  const std::unique_ptr<
      grpc::ClientReaderInterface<v1::WatchServerPlanResponse>>
      parts_;
  grpc::ClientContext* const context_;
  PlanJoiner joiner_;
};

// The server as of its last RegisterServer.
struct Registration {
  std::string server_id;
  int64_t incarnation = 0;
  std::string directory_id;
  std::shared_ptr<ServerPlanWatch> watch;
};

class GrpcServerControlClient : public ServerControlClient {
 public:
  GrpcServerControlClient(const std::string& address,
                          std::unique_ptr<rpc::Dialer> dialer)
      : call_options_{absl::Seconds(10), "",
                      absl::StrCat("coordinator ", address)},
        dialer_(std::move(dialer)) {}

  absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request) override {
    ASSIGN_OR_RETURN(
        v1::RegisterServerResponse response,
        rpc::Call(*Stub(), &Servers::RegisterServer, request, call_options_));
    NoteLog(response.has_log() ? response.log() : request.log_seen());
    auto registration = std::make_shared<Registration>();
    registration->server_id = request.server_id();
    registration->incarnation = request.incarnation();
    registration->directory_id = request.directory_id();
    registration->watch = MakeWatch(*registration);
    MutexLock lock(&mutex_);
    std::swap(registration_, registration);
    return response;
  }

  absl::StatusOr<v1::ServerPlan> WaitForPlan(const PlanPosition& after,
                                             absl::Duration timeout,
                                             std::stop_token stop) override {
    const absl::Time deadline = absl::Now() + timeout;
    ASSIGN_OR_RETURN(const auto registration, Registered());
    return registration->watch->WaitForPlan(after, deadline, stop);
  }

  absl::StatusOr<v1::ReportShardsResponse> ReportShards(
      v1::ReportShardsRequest report) override {
    ASSIGN_OR_RETURN(const auto registration, Registered());
    report.set_server_id(registration->server_id);
    report.set_incarnation(registration->incarnation);
    report.set_directory_id(registration->directory_id);
    if (report.has_log_seen()) NoteLog(report.log_seen());
    v1::ReportShardsResponse response;
    for (const v1::ReportShardsRequest& part : CutReport(std::move(report))) {
      const auto asked = response.whole_report_run_ids();
      ASSIGN_OR_RETURN(response, rpc::Call(*Stub(), &Servers::ReportShards,
                                           part, call_options_));
      response.mutable_whole_report_run_ids()->MergeFrom(asked);
    }
    return response;
  }

 private:
  std::unique_ptr<Servers> Stub() {
    return v1::ServerService::NewStub(dialer_->channel());
  }

  // The dialer outlives every watch: both belong to this object.
  std::shared_ptr<ServerPlanWatch> MakeWatch(const Registration& registration) {
    v1::WatchServerPlanRequest request;
    request.set_server_id(registration.server_id);
    request.set_incarnation(registration.incarnation);
    request.set_directory_id(registration.directory_id);
    request.set_features(ProgramFeatures());
    return std::make_shared<ServerPlanWatch>(
        [this, request](grpc::ClientContext* context)
            -> std::unique_ptr<
                grpc::ClientReaderInterface<v1::WatchServerPlanResponse>> {
          v1::WatchServerPlanRequest asked = request;
          const v1::LogPosition seen = log_seen();
          if (!seen.cluster_id().empty()) *asked.mutable_log_seen() = seen;
          return std::make_unique<WholePlans>(
              Stub()->WatchServerPlan(context, asked), context);
        });
  }

  void NoteLog(const v1::LogPosition& log) {
    MutexLock lock(&mutex_);
    log_seen_ = log;
  }
  v1::LogPosition log_seen() {
    MutexLock lock(&mutex_);
    return log_seen_;
  }

  absl::StatusOr<std::shared_ptr<Registration>> Registered() {
    MutexLock lock(&mutex_);
    if (registration_ == nullptr) {
      return absl::FailedPreconditionError(
          "not registered: RegisterServer first");
    }
    return registration_;
  }

  const rpc::CallOptions call_options_;
  const std::unique_ptr<rpc::Dialer> dialer_;
  Mutex mutex_;
  v1::LogPosition log_seen_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Registration> registration_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerControlClient>> MakeServerControlClient(
    const std::string& address, const rpc::ChannelOptions& channel) {
  ASSIGN_OR_RETURN(auto dialer, rpc::Dialer::Make(address, channel));
  return std::make_unique<GrpcServerControlClient>(address, std::move(dialer));
}

}  // namespace atl::coordinator
