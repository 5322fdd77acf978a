// Progress of a long command on the message stream: one line that is
// overwritten on a terminal, plain lines at a bounded rate elsewhere.
//
// Thread-safe, but for what others write to the stream.

#pragma once

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
    // True if the stream is a terminal that understands "\r" and "erase line".
    bool live = false;
    // Columns of the terminal; longer lines are cut there.
    int columns = 80;
    // Off a terminal, at most one line in so long, unless it is important.
    absl::Duration interval = absl::Seconds(2);
  };

  Progress(const Options& options, std::ostream& stream)
      : options_(options), stream_(stream) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows where the work stands at `now`. Off a terminal a line that equals
  // the last one printed, or that comes before its time, is left out.
  void Update(absl::string_view line, absl::Time now);

  // Prints a line that stays, above the live line.
  void Note(absl::string_view line);

  // Takes the live line away; prints what Update last left out.
  void Clear();

 private:
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  std::ostream& stream_ ABSL_GUARDED_BY(mutex_);
  std::string line_ ABSL_GUARDED_BY(mutex_);  // What is to be seen.
  // Last line printed off a terminal.
  std::string printed_ ABSL_GUARDED_BY(mutex_);
  // A live line stands on the terminal.
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time printed_time_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace atl::cli
