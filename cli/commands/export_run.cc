#include "cli/commands/export_run.h"

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "server/client/parameter_client.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

// Longest time for one fragment, retries included.
constexpr absl::Duration kPullTimeout = absl::Minutes(10);
constexpr absl::Duration kPinLease = absl::Minutes(10);

std::string RandomPinId() {
  std::random_device device;
  return absl::StrFormat("export-%08x%08x", device(), device());
}

// Lets the cut go when the export is over, however it ended.
class PinRelease {
 public:
  PinRelease(coordinator::RunClient& client, std::string run_id,
             std::string pin_id)
      : client_(client), run_id_(std::move(run_id)), pin_id_(pin_id) {}
  ~PinRelease() {
    if (pin_id_.empty()) return;
    v1::ExportCheckpointRequest request;
    request.set_run_id(run_id_);
    request.set_pin_id(pin_id_);
    request.set_release(true);
    // Its lease ends by itself if this is not heard.
    client_.ExportCheckpoint(request).IgnoreError();
  }
  PinRelease(const PinRelease&) = delete;
  PinRelease& operator=(const PinRelease&) = delete;

 private:
  coordinator::RunClient& client_;
  const std::string run_id_;
  const std::string pin_id_;
};

// Copies a fragment's flat order to its places in the model order.
void Scatter(const RunLayout& layout, int32_t fragment,
             absl::Span<const float> elements, std::vector<float>* model) {
  for (int32_t index : layout.fragment_tensors(fragment)) {
    const TensorPlace& place = layout.tensors()[index];
    const auto begin = elements.begin() + place.fragment_offset;
    std::copy(begin, begin + place.element_count,
              model->begin() + place.model_offset);
  }
}

// The parameters of the pinned cut, in the model order.
absl::StatusOr<std::vector<float>> PullCut(
    const v1::ExportCheckpointResponse& pinned, const RunLayout& layout,
    server::ParameterClient& client) {
  client.SetRoutes(server::RoutesOf(pinned));
  std::vector<float> model(layout.element_count());
  for (const v1::FragmentVersion& at : pinned.pin().cut()) {
    if (at.fragment() < 0 || at.fragment() >= layout.fragment_count()) {
      return absl::InternalError("the cut names a fragment that is not there");
    }
    std::vector<float> elements(layout.fragment_element_count(at.fragment()));
    server::CallBounds bounds;
    bounds.deadline = absl::Now() + kPullTimeout;
    const server::TransferOutcome outcome =
        client.Pull(at.fragment(), at.version(),
                    Digest128::FromProto(at.digest()),
                    absl::MakeSpan(elements), bounds);
    if (!outcome.status.ok()) {
      return WithContext(outcome.status,
                         absl::StrCat("reading fragment ", at.fragment(),
                                      " at version ", at.version()));
    }
    Scatter(layout, at.fragment(), elements, &model);
  }
  return model;
}

}  // namespace

absl::StatusOr<Exported> ExportRun(const Context& context,
                                   coordinator::RunClient& client,
                                   const ExportOptions& options) {
  v1::ExportCheckpointRequest request;
  request.set_run_id(options.run_id);
  request.set_pin_id(options.checkpoint.empty() ? RandomPinId()
                                                : options.checkpoint);
  request.mutable_lease_duration()->set_seconds(
      absl::ToInt64Seconds(kPinLease));
  ASSIGN_OR_RETURN(const v1::ExportCheckpointResponse pinned,
                   client.ExportCheckpoint(request));
  PinRelease release(client, options.run_id,
                     options.checkpoint.empty() ? request.pin_id() : "");
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(pinned.run().spec().layout()));
  server::ParameterClientOptions client_options;
  client_options.run_id = options.run_id;
  client_options.shard_count = pinned.run().spec().server_count();
  client_options.channel =
      context.MakeChannelOptions(rpc::ChannelKind::kData);
  ASSIGN_OR_RETURN(std::unique_ptr<server::ParameterClient> shards,
                   server::MakeParameterClient(client_options, layout));
  ASSIGN_OR_RETURN(const std::vector<float> parameters,
                   PullCut(pinned, layout, *shards));
  Exported exported;
  exported.directory = options.directory;
  exported.commit_seq = pinned.pin().commit_seq();
  exported.received_bytes = shards->counters().received_payload_bytes;
  exported.parameters_sha256 = ParametersSha256(layout, parameters);
  RETURN_IF_ERROR(WriteModel(pinned, parameters, exported));
  return exported;
}

}  // namespace atl::cli
