// LOG(INFO) << ..., with Abseil's names: one line for each message to stderr,
// `I1121 04:25:12.123456 file.cc:12] text` in UTC. Thread-safe: each line is
// one write.

#pragma once

#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/check.h"

namespace atl {

enum class LogSeverity { kInfo = 0, kWarning = 1, kError = 2, kFatal = 3 };

// Drops messages below `severity`, but never FATAL ones. Default: INFO.
void SetMinimumLogSeverity(LogSeverity severity);

// Sets the minimum to "info", "warning" or "error".
// INVALID_ARGUMENT: `name` is none of them; nothing changes.
absl::Status SetMinimumLogSeverity(absl::string_view name);

// Receives log lines instead of stderr.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // `line` is complete, without its newline; `text` is the part after "] ".
  // Called by any thread, one call at a time; must not log.
  virtual void Send(LogSeverity severity, absl::string_view line,
                    absl::string_view text) = 0;
};

// Sends lines to `sink` until the next call, FATAL ones to stderr as well.
// Null: to stderr. On return no call of the previous sink is running.
void SetLogSink(LogSink* sink);

namespace log_internal {

bool IsOn(LogSeverity severity);

// Collects a message; its destructor writes it, and aborts if it is FATAL.
class Message {
 public:
  Message(LogSeverity severity, const char* file, int line);
  ~Message();
  std::ostream& stream() { return stream_; }

 private:
  const LogSeverity severity_;
  std::ostringstream stream_;
  size_t text_begin_ = 0;
};

inline constexpr LogSeverity kINFO = LogSeverity::kInfo;
inline constexpr LogSeverity kWARNING = LogSeverity::kWarning;
inline constexpr LogSeverity kERROR = LogSeverity::kError;
inline constexpr LogSeverity kFATAL = LogSeverity::kFatal;

}  // namespace log_internal
}  // namespace atl

#define LOG(severity)                                                      \
  !::atl::log_internal::IsOn(::atl::log_internal::k##severity)             \
      ? (void)0                                                            \
      : ::atl::check_internal::Voidify() &                                 \
            ::atl::log_internal::Message(::atl::log_internal::k##severity, \
                                         __FILE__, __LINE__)               \
                .stream()
