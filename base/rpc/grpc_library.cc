#include "base/rpc/grpc_library.h"

#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/obs/log.h"
#include "grpc/grpc.h"
#include "grpc/support/log.h"

namespace atl::rpc {
namespace {

// Logs gRPC's message without the tree of causes that follows it.
void TakeLog(gpr_log_func_args* args) {
  absl::string_view text = args->message;
  LOG(INFO) << "gRPC: " << text.substr(0, text.find(" {"));
}

}  // namespace

void KeepGrpcRunning() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function(TakeLog);
    grpc_init();
  });
}

}  // namespace atl::rpc
