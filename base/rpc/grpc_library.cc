#include "base/rpc/grpc_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
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

// An entry of gRPC's own table of HTTP/2 settings, as in version 1.51.
struct SettingParameters {
  const char* name;
  uint32_t value;  // Until the peer has said or acknowledged another one.
  uint32_t value_min;
  uint32_t value_max;
  int on_invalid_value;
  uint32_t invalid_value_error;
};
constexpr int kMaxConcurrentStreams = 2;  // Its place in the table.

// No argument of gRPC bounds the streams before the acknowledgement, so this
// changes the library's table. False: it is not the table that we know.
bool LimitNewPeers() {
  auto* const table = static_cast<SettingParameters*>(
      dlsym(RTLD_DEFAULT, "grpc_chttp2_settings_parameters"));
  if (table == nullptr) return false;
  SettingParameters& streams = table[kMaxConcurrentStreams];
  if (streams.value != std::numeric_limits<uint32_t>::max() ||
      absl::string_view(streams.name) != "MAX_CONCURRENT_STREAMS") {
    return false;
  }
  // The loader made the table's pages read-only.
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t place = reinterpret_cast<uintptr_t>(&streams.value);
  auto* const page = reinterpret_cast<void*>(place / page_bytes * page_bytes);
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  streams.value = kStreamsMax;
  mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace

void KeepGrpcRunning() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function(TakeLog);
    google::protobuf::SetLogHandler(TakeProtobufLog);
    if (!LimitNewPeers()) {
      LOG(WARNING) << "this gRPC is not the known one: a peer may open streams "
                   << "without a bound";
    }
    grpc_init();
  });
}

}  // namespace atl::rpc
