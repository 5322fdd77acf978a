// One child process of `atoll dev up`.
//
// A child dies with its parent (PR_SET_PDEATHSIG), even after kill -9. It has
// its own process group, so that Ctrl-C at a terminal reaches only the parent.
// It appends its output to a log file.
//
// Thread-compatible. Use it only from a thread that outlives the children:
// Linux ties the death signal to the thread that forks.

#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace atl::cli {

// How a child ended.
struct ChildExit {
  int exit_code = 0;  // If it exited.
  int signal = 0;     // If a signal ended it; else 0.

  // "exited with 1", "was killed by signal 9".
  std::string ToString() const;
};

// How often and how soon a dead child is restarted. Pure.
class RestartBudget {
 public:
  // At most `count_max` deaths in `window`.
  RestartBudget(int count_max, absl::Duration window)
      : count_max_(count_max), window_(window) {}

  // Counts a death at `now`. Returns the wait before the next start, or nothing
  // if the budget is exhausted.
  std::optional<absl::Duration> Die(absl::Time now);

 private:
  const int count_max_;
  const absl::Duration window_;
  std::deque<absl::Time> deaths_;
};

class Child {
 public:
  struct Options {
    std::string name;      // "server-0"
    std::string log_path;  // Appended to.
    std::string pid_path;  // Holds the pid while it runs.
    // The command line of the n-th start, from 0; [0] is the program's path.
    std::function<std::vector<std::string>(int start_count)> command;
  };

  explicit Child(Options options) : options_(std::move(options)) {}
  // Kills the child.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  bool running() const { return pid_ > 0; }
  int start_count() const { return start_count_; }

  // Starts the child. Requires: not running.
  //
  // NOT_FOUND: no executable program at the path. INTERNAL: the log cannot be
  // opened or the pid not written; neither may be a link. RESOURCE_EXHAUSTED: fork failed.
  absl::Status Start();

  // Returns how the child ended, once, if it has ended. Does not wait.
  std::optional<ChildExit> Poll();

  // Sends a signal if the child runs.
  void Signal(int signal);

  // Waits until the child has ended; kills it after `timeout`.
  void Await(absl::Duration timeout);

  std::string LogTail(int line_count) const;

 private:
  absl::Status WritePid() const;

  Options options_;
  pid_t pid_ = 0;
  int start_count_ = 0;
};

}  // namespace atl::cli
