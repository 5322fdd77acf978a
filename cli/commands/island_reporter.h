// Tells a volunteer how an island does: one line that is overwritten on a
// terminal, lines at a bounded rate elsewhere, and above it what happens once.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/obs/log.h"
#include "base/sync/mutex.h"
#include "cli/output/progress.h"
#include "worker/api/run_island.h"

namespace atl::cli {

class IslandReporter : public LogSink {
 public:
  // `stream` outlives this.
  IslandReporter(const Progress::Options& options, std::ostream& stream)
      : live_(options.live),
        interval_(options.live ? absl::Milliseconds(100) : options.interval),
        progress_(options, stream) {}

  // Shows where the island stands at `now`, as often as makes sense.
  void Report(const worker::IslandProgress& at, absl::Time now);

  // A line that stays.
  void Note(absl::string_view line);

  // The log: its text alone on a terminal, its lines whole elsewhere. What gRPC
  // says is left out: what matters of it is told as an error.
  void Send(LogSeverity severity, absl::string_view line,
            absl::string_view text) override;

  // Takes the live line away.
  void Clear();

 private:
  std::string Line(const worker::IslandProgress& at, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Left(const worker::IslandProgress& at, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool live_;
  const absl::Duration interval_;
  Mutex mutex_;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t evaluated_version_ ABSL_GUARDED_BY(mutex_) = -1;
  bool forecast_told_ ABSL_GUARDED_BY(mutex_) = false;
  // The first step seen in this life that was trained in it, and when, for the
  // time left.
  int64_t first_step_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Time first_time_ ABSL_GUARDED_BY(mutex_);
};

// Sends the log to `reporter` while it lives.
class LogToReporter {
 public:
  explicit LogToReporter(IslandReporter& reporter) { SetLogSink(&reporter); }
  ~LogToReporter() { SetLogSink(nullptr); }
  LogToReporter(const LogToReporter&) = delete;
  LogToReporter& operator=(const LogToReporter&) = delete;
};

}  // namespace atl::cli
