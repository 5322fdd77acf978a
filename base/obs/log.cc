#include "base/obs/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/obs/log_limit.h"
#include "base/status/cut_utf8.h"
#include "base/sync/mutex.h"

namespace atl {
namespace {

constexpr int kLibraryLinesMax = 10;
constexpr size_t kLibraryBytesMax = 300;

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

// The text before the first control character.
absl::string_view FirstLine(absl::string_view text) {
  const auto end = std::find_if(text.begin(), text.end(), absl::ascii_iscntrl);
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

// Never destroyed, as Sink.
struct Limit {
  Mutex mutex;
  LogLimit limit ABSL_GUARDED_BY(mutex);
};
Limit& TheLimit() {
  static Limit& limit = *new Limit;
  return limit;
}

void Write(const std::vector<LogLimit::LeftOut>& ended) {
  for (const auto& [kind, count] : ended) {
    log_internal::Message(static_cast<LogSeverity>(kind.severity), kind.file,
                          kind.line)
            .stream()
        << kind.subject << (kind.subject.empty() ? "" : ": ") << count
        << " more of these";
  }
}

}  // namespace

void LogLeftOut() {
  Limit& limit = TheLimit();
  std::vector<LogLimit::LeftOut> ended;
  {
    MutexLock lock(&limit.mutex);
    ended = limit.limit.TakeEnded(absl::Now());
  }
  Write(ended);
}

void LogFromLibrary(LogSeverity severity, absl::string_view library,
                    absl::string_view file, int line, absl::string_view text) {
  if (!log_internal::ShouldLog(severity, file, line, library,
                               kLibraryLinesMax)) {
    return;
  }
  log_internal::Message(severity, file, line).stream()
      << library << ": " << CutUtf8(FirstLine(text), kLibraryBytesMax);
}

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

bool ShouldLog(LogSeverity severity, absl::string_view file, int line,
               absl::string_view subject, int lines_max) {
  if (severity == LogSeverity::kFatal) return true;
  if (static_cast<int>(severity) <
      minimum_severity.load(std::memory_order_relaxed)) {
    return false;
  }
  LogLimit::Kind kind = {std::string(BaseName(file)), line,
                         static_cast<int>(severity), std::string(subject)};
  Limit& limit = TheLimit();
  std::vector<LogLimit::LeftOut> ended;
  bool should_log;
  {
    MutexLock lock(&limit.mutex);
    const absl::Time now = absl::Now();
    ended = limit.limit.TakeEnded(now);
    should_log = limit.limit.Admit(std::move(kind), lines_max, now);
  }
  Write(ended);
  return should_log;
}

Message::Message(LogSeverity severity, absl::string_view file, int line)
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
