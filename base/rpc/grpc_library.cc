#include "base/rpc/grpc_library.h"

#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/obs/log.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/grpc.h"
#include "grpc/support/log.h"

namespace atl::rpc {
namespace {

// Logs gRPC's message without the tree of causes that follows it.
void TakeLog(gpr_log_func_args* args) {
  absl::string_view text = args->message;
  LogFromLibrary(LogSeverity::kInfo, "gRPC", args->file, args->line,
                 text.substr(0, text.find(" {")));
}

void TakeProtobufLog(google::protobuf::LogLevel level, const char* file,
                     int line, const std::string& text) {
  // protobuf ends the process after a FATAL line.
  LogFromLibrary(level == google::protobuf::LOGLEVEL_FATAL
                     ? LogSeverity::kError
                     : LogSeverity::kInfo,
                 "protobuf", file, line, text);
}

}  // namespace

void KeepGrpcRunning() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function(TakeLog);
    google::protobuf::SetLogHandler(TakeProtobufLog);
    grpc_init();
  });
}

}  // namespace atl::rpc
