#include "base/rpc/grpc_library.h"

#include <mutex>

#include "absl/synchronization/mutex.h"
#include "grpc/grpc.h"

namespace atl::rpc {

void KeepGrpcRunning() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc_init();
  });
}

}  // namespace atl::rpc
