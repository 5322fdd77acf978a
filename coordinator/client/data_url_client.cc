#include "coordinator/client/data_url_client.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"

namespace atl::coordinator {

using Service = v1::IslandService;

absl::StatusOr<std::string> SignDataUrl(const std::string& address,
                                        const rpc::ChannelOptions& channel,
                                        const std::string& run_id,
                                        const std::string& path,
                                        const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> made,
                   rpc::MakeChannel(address, channel));
  v1::SignDataUrlsRequest request;
  request.set_run_id(run_id);
  request.add_paths(path);
  rpc::CallOptions call;
  call.timeout = absl::Seconds(10);
  call.stop = stop;
  call.peer = absl::StrCat("coordinator ", address);
  ASSIGN_OR_RETURN(const v1::SignDataUrlsResponse response,
                   rpc::Call(*Service::NewStub(made),
                             &Service::Stub::SignDataUrls, request, call));
  if (response.urls_size() != 1) {
    return absl::InternalError("the coordinator's answer has no URL");
  }
  return response.urls(0).url();
}

}  // namespace atl::coordinator
