#include "cli/commands/run/export_run.h"

#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/checkpoints.h"
#include "cli/flags/server_wait.h"
#include "server/client/parameter_client.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kPinLease = absl::Minutes(10);
// Time for a cancelled export to release its pin.
constexpr absl::Duration kReleaseTimeout = absl::Milliseconds(500);

std::string RandomPinId() {
  std::random_device device;
  return absl::StrFormat("export-%08x%08x", device(), device());
}

// Releases the pin when the export ends, also after an error.
class PinRelease {
 public:
  PinRelease(coordinator::Client& client, std::string run_id,
             std::string pin_id, std::stop_token stop)
      : client_(client),
        run_id_(std::move(run_id)),
        pin_id_(std::move(pin_id)),
        stop_(std::move(stop)) {}
  ~PinRelease() {
    if (pin_id_.empty()) return;
    v1::ExportCheckpointRequest request;
    request.set_run_id(run_id_);
    request.set_pin_id(pin_id_);
    request.set_release(true);
    // If the call fails the lease expires by itself.
    if (stop_.stop_requested()) {
      client_.InBackground({}, kReleaseTimeout)
          ->Call(&v1::RunService::Stub::ExportCheckpoint, request)
          .IgnoreError();
    } else {
      client_.Call(&v1::RunService::Stub::ExportCheckpoint, request)
          .IgnoreError();
    }
  }
  PinRelease(const PinRelease&) = delete;
  PinRelease& operator=(const PinRelease&) = delete;

 private:
  coordinator::Client& client_;
  const std::string run_id_;
  const std::string pin_id_;
  const std::stop_token stop_;
};

}  // namespace

absl::StatusOr<Exported> ExportRun(const Context& context,
                                   coordinator::Client& client,
                                   const ExportOptions& options) {
  if (!options.checkpoint.empty()) {
    RETURN_IF_ERROR(
        FindCheckpoint(client, options.run_id, options.checkpoint).status());
  }
  v1::ExportCheckpointRequest request;
  request.set_run_id(options.run_id);
  request.set_pin_id(options.checkpoint.empty() ? RandomPinId()
                                                : options.checkpoint);
  request.mutable_lease_duration()->set_seconds(
      absl::ToInt64Seconds(kPinLease));
  ASSIGN_OR_RETURN(
      const v1::ExportCheckpointResponse pinned,
      client.Call(&v1::RunService::Stub::ExportCheckpoint, request));
  PinRelease release(client, options.run_id,
                     options.checkpoint.empty() ? request.pin_id() : "",
                     options.stop);
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(pinned.run().spec().layout()));
  server::ParameterClientOptions client_options =
      server::MakeRunOptions(pinned.run());
  client_options.channel = context.MakeChannelOptions(rpc::ChannelKind::kData);
  ASSIGN_OR_RETURN(std::unique_ptr<server::ParameterClient> shards,
                   server::MakeParameterClient(client_options, layout));
  shards->SetRoutes(server::ToRoutes(pinned));

  ServerWait wait(
      client, options.run_id, server::ToRoutes(pinned), options.patience,
      [&](const server::ShardRoutes& routes) { shards->SetRoutes(routes); },
      options.on_notice);
  worker::ExportModelOptions export_options = MakeModelOptions(options);
  export_options.idle_max = options.patience;
  export_options.stop = options.stop;
  export_options.on_waiting = [&](const server::TransferWait& waiting) {
    wait.OnWaiting(waiting);
  };
  export_options.on_progress = [&](int64_t done, int64_t total) {
    if (!options.on_progress) return;
    options.on_progress(DescribeExport(options.run_id, done, total));
  };
  const absl::StatusOr<worker::ExportedModel> model =
      worker::ExportModel(pinned, *shards, export_options);
  if (!model.ok()) return WithExportHint(model.status());
  return MakeExported(export_options, pinned.pin().commit_seq(), *model);
}

}  // namespace atl::cli
