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
// An entry that we change.
struct Bound {
  int place;  // In the table.
  absl::string_view name;
  uint32_t known;
  uint32_t wanted;
};
constexpr Bound kBounds[] = {
    {2, "MAX_CONCURRENT_STREAMS", std::numeric_limits<uint32_t>::max(),
     kStreamsMax},
    {5, "MAX_HEADER_LIST_SIZE", 16 << 20, kHeaderBytesMax},
};

bool SetReadOnly(uint32_t& value, uint32_t wanted) {
  // The loader made the table's pages read-only.
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t place = reinterpret_cast<uintptr_t>(&value);
  auto* const page = reinterpret_cast<void*>(place / page_bytes * page_bytes);
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  value = wanted;
  mprotect(page, page_bytes, PROT_READ);
  return true;
}

// No argument of gRPC bounds a peer before the acknowledgement, so this changes
// the library's table. False: it is not the table that we know.
bool LimitNewPeers() {
  auto* const table = static_cast<SettingParameters*>(
      dlsym(RTLD_DEFAULT, "grpc_chttp2_settings_parameters"));
  if (table == nullptr) return false;
  for (const Bound& bound : kBounds) {
    SettingParameters& entry = table[bound.place];
    if (entry.value != bound.known || entry.name != bound.name ||
        !SetReadOnly(entry.value, bound.wanted)) {
      return false;
    }
  }
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
                   << "and send headers without a bound";
    }
    grpc_init();
  });
}

}  // namespace atl::rpc
