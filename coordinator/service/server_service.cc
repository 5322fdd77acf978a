#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "base/features/features.h"
#include "coordinator/client/plan_parts.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/latest_writer.h"
#include "coordinator/service/services.h"

namespace atl::coordinator {
namespace {

class ServerServiceImpl : public v1::ServerService::CallbackService {
 public:
  explicit ServerServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* RegisterServer(
      grpc::CallbackServerContext* context,
      const v1::RegisterServerRequest* request,
      v1::RegisterServerResponse* response) override {
    const absl::Status caller =
        CheckCaller(*context, Role::kServer, request->server_id());
    if (!caller.ok()) return AnswerError(context, caller);
    return Answer<v1::RegisterServerResponse>(
        loop_, context, request, response,
        [=](Coordinator& coordinator, absl::Time now) {
          return coordinator.RegisterServer(*request, now);
        });
  }

  grpc::ServerWriteReactor<v1::WatchServerPlanResponse>* WatchServerPlan(
      grpc::CallbackServerContext* context,
      const v1::WatchServerPlanRequest* request) override {
    auto writer =
        LatestWriter<v1::WatchServerPlanResponse, v1::ServerPlan>::Make(
            [](v1::ServerPlan plan) { return CutPlan(std::move(plan)); },
            MergePlans);
    const absl::Status caller =
        CheckCaller(*context, Role::kServer, request->server_id());
    if (caller.ok()) {
      loop_.WatchServer(request->server_id(), request->incarnation(), writer,
                        request->log_seen(), request->directory_id(),
                        PeerFeatures(request->features()),
                        GetOrigin(context, *request));
    } else {
      writer->End(caller);
    }
    return writer.get();
  }

  grpc::ServerUnaryReactor* ReportShards(
      grpc::CallbackServerContext* context,
      const v1::ReportShardsRequest* request,
      v1::ReportShardsResponse* response) override {
    const absl::Status caller =
        CheckCaller(*context, Role::kServer, request->server_id());
    if (!caller.ok()) return AnswerError(context, caller);
    return Answer<v1::ReportShardsResponse>(
        loop_, context, request, response,
        [=](Coordinator& coordinator, absl::Time now) {
          // A report may have 10,000 entries. It belongs to this call, and
          // nothing reads it later.
          v1::ReportShardsRequest report;
          report.Swap(const_cast<v1::ReportShardsRequest*>(request));
          const std::string server_id = report.server_id();
          std::optional<v1::ServerHealth> health;
          if (report.has_health()) health = report.health();
          auto reported = coordinator.ReportShards(std::move(report), now);
          if (reported.ok() && health.has_value()) {
            coordinator.NoteHealth(server_id, *health, absl::Now());
          }
          return reported;
        });
  }

 private:
  EventLoop& loop_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeServerService(EventLoop& loop) {
  return std::make_unique<ServerServiceImpl>(loop);
}

}  // namespace atl::coordinator
