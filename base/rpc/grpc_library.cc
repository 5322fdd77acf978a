#include "base/rpc/grpc_library.h"

#include <mutex>

#include "grpc/grpc.h"

namespace atl::rpc {

void KeepGrpcRunning() {
  static std::once_flag once;
  std::call_once(once, [] { grpc_init(); });
}

}  // namespace atl::rpc
