// Progress of a long command on the message stream: one line that is
// overwritten on a terminal, plain lines at a bounded rate elsewhere.
//
// Thread-safe, if nothing else writes to the stream.

#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"

namespace atl::cli {

class Progress {
 public:
  struct Options {
    // The stream is a terminal that supports "\r" and "erase line".
    bool live = false;
    // Columns of the terminal; longer lines are cut.
    int columns = 80;
    // Without a terminal: the least time between two lines.
    absl::Duration interval = absl::Seconds(2);
  };

  Progress(const Options& options, std::ostream& stream)
      : options_(options), stream_(stream) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows the progress at `now`. Without a terminal, drops a line that repeats
  // the last printed one or comes before `interval` has passed.
  void Update(absl::string_view line, absl::Time now);

  // Prints a line that stays, above the live line.
  void Note(absl::string_view line);

  // Removes the live line; prints the last line that Update dropped.
  void Clear();

 private:
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  std::ostream& stream_ ABSL_GUARDED_BY(mutex_);
  std::string line_ ABSL_GUARDED_BY(mutex_);  // The current line.
  std::string printed_ ABSL_GUARDED_BY(mutex_);
  // The terminal shows a live line.
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time printed_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Shows lines of `progress` from the second second on.
std::function<void(const std::string&)> ShowAfterASecond(Progress& progress);

}  // namespace atl::cli
