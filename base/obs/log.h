// LOG(INFO) << ..., with Abseil's names: one line for each message to stderr,
// `I1121 04:25:12.123456 file.cc:12] text` in UTC. Thread-safe: each line is
// one write.
//
// A kind of lines is a LOG statement, and in LOG_ABOUT a subject. Beyond 100
// lines of a kind in 10 s (base/obs/log_limit.h) lines are left out. One line
// then tells their number: "123 more of these".

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

// Logs a line of a library, with its own place in the source: "gRPC: text".
// At most 10 of a kind in 10 s are written: a stranger may cause such lines.
// `text` is cut at its first control character, and to 300 bytes.
void LogFromLibrary(LogSeverity severity, absl::string_view library,
                    absl::string_view file, int line, absl::string_view text);

// Logs the numbers of lines that were left out, of all kinds whose time is
// over. Each line that is logged does this too: for programs that may be silent
// for long.
void LogLeftOut();

namespace log_internal {

// False: the line is below the minimum severity, or is left out. `file` may be
// a path.
bool ShouldLog(LogSeverity severity, absl::string_view file, int line,
               absl::string_view subject, int lines_max);

inline constexpr int kLinesMax = 100;

// Collects a message; its destructor writes it, and aborts if it is FATAL.
class Message {
 public:
  Message(LogSeverity severity, absl::string_view file, int line);
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

#define LOG(severity) LOG_ABOUT(severity, "")

// LOG_ABOUT(INFO, "run a") << ...: each subject is a kind of its own. Subjects
// must be few, and remote callers must not choose them.
#define LOG_ABOUT(severity, subject)                                       \
  !::atl::log_internal::ShouldLog(::atl::log_internal::k##severity,        \
                                  __FILE__, __LINE__, subject,             \
                                  ::atl::log_internal::kLinesMax)          \
      ? (void)0                                                            \
      : ::atl::check_internal::Voidify() &                                 \
            ::atl::log_internal::Message(::atl::log_internal::k##severity, \
                                         __FILE__, __LINE__)               \
                .stream()
