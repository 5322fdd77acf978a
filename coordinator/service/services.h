// The coordinator's five services. They hand each call to the core or the
// store, and hold no rule. Thread-safe. `loop` must outlive a service.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "coordinator/service/data_url_signer.h"
#include "coordinator/service/event_loop.h"
#include "grpcpp/impl/service_type.h"

namespace atl::coordinator {

std::unique_ptr<grpc::Service> MakeRunService(EventLoop& loop);
// `data_dir` is the directory of the log; empty: it has none.
std::unique_ptr<grpc::Service> MakeTrainingStateService(
    EventLoop& loop, std::string data_dir = "");
// `signer` signs URLs of runs' data, and must outlive the service. Null:
// signing is refused.
std::unique_ptr<grpc::Service> MakeIslandService(
    EventLoop& loop, DataUrlSigner* signer = nullptr);
std::unique_ptr<grpc::Service> MakeServerService(EventLoop& loop);
// `pin` names the root of the coordinator's own certificate, which a gate must
// have too; empty: it is not known. `admits_islands` says whether the listeners
// accept certificates of an island CA now: without it a gate would spend tokens
// on islands that cannot connect.
std::unique_ptr<grpc::Service> MakeEnrolmentService(
    EventLoop& loop, std::string pin, std::function<bool()> admits_islands);

}  // namespace atl::coordinator
