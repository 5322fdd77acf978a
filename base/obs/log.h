// LOG(INFO) << ..., in Abseil's names and shapes: one line a message to stderr,
// `I1121 04:25:12.123456 file.cc:12] text` in UTC, with the program's name
// before the file if it was set.
//
// Thread-safe: a line is written with one call.

#ifndef BASE_OBS_LOG_H_
#define BASE_OBS_LOG_H_

#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/check.h"

namespace atl {

enum class LogSeverity { kInfo = 0, kWarning = 1, kError = 2, kFatal = 3 };

// Drops messages below `severity`; FATAL always is written. Default: INFO.
void SetMinimumLogSeverity(LogSeverity severity);

// Reads "info", "warning" or "error" and sets the minimum.
//
// INVALID_ARGUMENT: `name` is none of them; nothing is changed.
absl::Status SetMinimumLogSeverity(absl::string_view name);

// Puts `name` before the file name in every later line, so that lines of
// several programs on one terminal can be told apart. Empty (the default):
// nothing.
void SetLogProgramName(absl::string_view name);

// Takes what would go to stderr.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // `line` is whole, without its newline, `text` the part of it behind "] ".
  // Called by any thread, one call at a time; must not log.
  virtual void Send(LogSeverity severity, absl::string_view line,
                    absl::string_view text) = 0;
};

// Lines go to `sink` until the next call, FATAL ones to stderr as well; null:
// to stderr. Returns when nobody is in the sink before any more.
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

#endif  // BASE_OBS_LOG_H_
