// Reports an island's progress: one line that is overwritten on a terminal,
// lines at a bounded rate elsewhere. Single events appear above it. Also formats
// the result at the island's end.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/obs/log.h"
#include "base/sync/mutex.h"
#include "cli/output/output.h"
#include "cli/output/progress.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// Reports the progress while the island runs. Thread-safe.
class IslandReporter : public LogSink {
 public:
  // `stream` outlives this.
  IslandReporter(const Progress::Options& options, std::ostream& stream)
      : live_(options.live),
        interval_(options.live ? absl::Milliseconds(100) : options.interval),
        progress_(options, stream) {}

  // Shows the progress at `now`, at most once an interval.
  void Report(const worker::IslandProgress& at, absl::Time now);

  // Prints a line that stays.
  void Note(absl::string_view line);

  // Prints a log record: its text on a terminal, its whole line elsewhere.
  // Drops gRPC's records: our own errors report its failures.
  void Send(LogSeverity severity, absl::string_view line,
            absl::string_view text) override;

  // The newest record of the log that is a warning or worse; empty: none.
  std::string last_warning() const;

  // Removes the live line.
  void Clear();

 private:
  std::string Line(const worker::IslandProgress& at, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Left(const worker::IslandProgress& at, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool live_;
  const absl::Duration interval_;
  mutable Mutex mutex_;
  std::string last_warning_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t evaluated_version_ ABSL_GUARDED_BY(mutex_) = -1;
  bool forecast_told_ ABSL_GUARDED_BY(mutex_) = false;
  // The first step that this process trained (-1: none yet), and when; for the
  // time left.
  int64_t first_step_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Time first_time_ ABSL_GUARDED_BY(mutex_);
};

// Sends the log to `reporter` for as long as this object exists.
class LogToReporter {
 public:
  explicit LogToReporter(IslandReporter& reporter) { SetLogSink(&reporter); }
  ~LogToReporter() { SetLogSink(nullptr); }
  LogToReporter(const LogToReporter&) = delete;
  LogToReporter& operator=(const LogToReporter&) = delete;
};

// The result at the end as data: the counters, measurements, forecasts and what
// became of the contributions (AddTally of cli/volunteer/local_status.h). Pure.
Json ToData(const worker::IslandProgress& at, const std::string& run_id,
            const std::string& island_id);

// The main part of it as a table.
std::string ToText(const worker::IslandProgress& at, const std::string& run_id,
                   const std::string& island_id);

}  // namespace atl::cli
