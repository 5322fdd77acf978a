#include "base/obs/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"

namespace atl {
namespace {

std::atomic<int> minimum_severity{0};

// Never destroyed: threads may log until the process ends.
struct Sink {
  Mutex mutex;
  LogSink* sink ABSL_GUARDED_BY(mutex) = nullptr;
};
Sink& TheSink() {
  static Sink& sink = *new Sink;
  return sink;
}

// False if no sink is set.
bool SendToSink(LogSeverity severity, absl::string_view line,
                absl::string_view text) {
  Sink& sink = TheSink();
  MutexLock lock(&sink.mutex);
  if (sink.sink == nullptr) return false;
  sink.sink->Send(severity, line, text);
  return true;
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

void SetMinimumLogSeverity(LogSeverity severity) {
  minimum_severity.store(static_cast<int>(severity), std::memory_order_relaxed);
}

absl::Status SetMinimumLogSeverity(absl::string_view name) {
  if (name == "info") {
    SetMinimumLogSeverity(LogSeverity::kInfo);
  } else if (name == "warning") {
    SetMinimumLogSeverity(LogSeverity::kWarning);
  } else if (name == "error") {
    SetMinimumLogSeverity(LogSeverity::kError);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("log level \"", name, "\" is not info, warning or error"));
  }
  return absl::OkStatus();
}

void SetLogSink(LogSink* sink) {
  Sink& current = TheSink();
  MutexLock lock(&current.mutex);
  current.sink = sink;
}

namespace log_internal {

bool IsOn(LogSeverity severity) {
  return severity == LogSeverity::kFatal ||
         static_cast<int>(severity) >=
             minimum_severity.load(std::memory_order_relaxed);
}

Message::Message(LogSeverity severity, const char* file, int line)
    : severity_(severity) {
  stream_ << "IWEF"[static_cast<int>(severity)]
          << absl::FormatTime("%m%d %H:%M:%E6S ", absl::Now(),
                              absl::UTCTimeZone())
          << BaseName(file) << ":" << line << "] ";
  text_begin_ = static_cast<size_t>(stream_.tellp());
}

Message::~Message() {
  std::string line = stream_.str();
  const bool sent = SendToSink(severity_, line,
                               absl::string_view(line).substr(text_begin_));
  if (!sent || severity_ == LogSeverity::kFatal) {
    line += '\n';
    // If the log cannot be written, there is nowhere to report it.
    (void)!write(STDERR_FILENO, line.data(), line.size());
  }
  if (severity_ == LogSeverity::kFatal) std::abort();
}

}  // namespace log_internal
}  // namespace atl
