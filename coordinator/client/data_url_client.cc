#include "coordinator/client/data_url_client.h"

#include <memory>

#include "absl/status/status.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "coordinator/client/client.h"

namespace atl::coordinator {

absl::StatusOr<std::string> SignDataUrl(const std::string& address,
                                        const rpc::ChannelOptions& channel,
                                        const std::string& run_id,
                                        const std::string& path,
                                        const std::stop_token& stop) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Client> client,
      MakeClient({.address = address, .channel = channel, .stop = stop}));
  v1::SignDataUrlsRequest request;
  request.set_run_id(run_id);
  request.add_paths(path);
  ASSIGN_OR_RETURN(
      const v1::SignDataUrlsResponse response,
      client->Call(&v1::IslandService::Stub::SignDataUrls, request));
  if (response.urls_size() != 1) {
    return absl::InternalError("the coordinator's answer has no URL");
  }
  return response.urls(0).url();
}

}  // namespace atl::coordinator
