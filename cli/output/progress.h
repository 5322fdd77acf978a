// Progress of a long command on the message stream: one line that is
// overwritten on a terminal, plain lines at a bounded rate elsewhere.
//
// Thread-compatible.

#ifndef CLI_OUTPUT_PROGRESS_H_
#define CLI_OUTPUT_PROGRESS_H_

#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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
  void Draw();

  Options options_;
  std::ostream& stream_;
  std::string line_;     // What is to be seen.
  std::string printed_;  // Last line printed off a terminal.
  bool drawn_ = false;   // A live line stands on the terminal.
  absl::Time printed_time_ = absl::InfinitePast();
};

}  // namespace atl::cli

#endif  // CLI_OUTPUT_PROGRESS_H_
