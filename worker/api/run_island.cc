#include "worker/api/run_island.h"

#include <functional>
#include <utility>

#include "base/io/posix_file_system.h"
#include "base/rpc/channel.h"
#include "base/status/status_macros.h"
#include "coordinator/client/run_client.h"
#include "worker/api/island_runner.h"

namespace atl::worker {

absl::StatusOr<IslandProgress> RunIslandOver(const RunIslandOptions& options,
                                             const IslandLinks& links) {
  ASSIGN_OR_RETURN(const std::unique_ptr<IslandRunner> runner,
                   IslandRunner::Create(options, links));
  return runner->Run();
}

absl::StatusOr<IslandProgress> RunIsland(const RunIslandOptions& options) {
  return RunIslandAltered(options, [](IslandLinks&) {});
}

absl::StatusOr<IslandProgress> RunIslandAltered(
    const RunIslandOptions& options,
    const std::function<void(IslandLinks&)>& alter) {
  const rpc::ChannelOptions control =
      rpc::MakeChannelOptions(rpc::ChannelKind::kControl, options.security);
  coordinator::CoordinatorClientOptions client_options;
  client_options.address = options.coordinator_address;
  client_options.channel = control;
  ASSIGN_OR_RETURN(const std::unique_ptr<coordinator::CoordinatorClient> client,
                   coordinator::MakeCoordinatorClient(client_options));
  coordinator::RunClientOptions run_options;
  run_options.address = options.coordinator_address;
  run_options.channel = control;
  ASSIGN_OR_RETURN(const std::unique_ptr<coordinator::RunClient> run_client,
                   coordinator::MakeRunClient(run_options));
  IslandLinks links;
  links.coordinator = client.get();
  links.file_system = &PosixFileSystem();
  links.get_run = [&]() -> absl::StatusOr<v1::Run> {
    v1::GetRunRequest request;
    request.set_run_id(options.run_id);
    ASSIGN_OR_RETURN(v1::GetRunResponse response, run_client->GetRun(request));
    return std::move(*response.mutable_run());
  };
  links.make_parameter_client = [&](const v1::RunSpec& spec,
                                    const RunLayout& layout) {
    server::ParameterClientOptions data;
    data.run_id = options.run_id;
    data.shard_count = spec.server_count();
    data.channel =
        rpc::MakeChannelOptions(rpc::ChannelKind::kData, options.security);
    data.caps = options.caps;
    data.whole_units = spec.durability() == v1::DURABILITY_ISLAND;
    data.stream_count = options.stream_count;
    return server::MakeParameterClient(data, layout);
  };
  alter(links);
  return RunIslandOver(options, links);
}

}  // namespace atl::worker
