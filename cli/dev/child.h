// One program that `atoll dev up` keeps alive.
//
// A child dies with its parent (PR_SET_PDEATHSIG), however that ends, has a
// process group of its own, so that Ctrl-C at a terminal reaches only the
// parent, and appends its output to a log file.
//
// Thread-compatible; to be used from one thread, the one that outlives the
// children: Linux ties the death signal to the thread that forks.

#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::cli {

// How a child ended.
struct ChildExit {
  int exit_code = 0;  // If it exited.
  int signal = 0;     // If a signal ended it; else 0.

  // "exited with 1", "was killed by signal 9".
  std::string ToString() const;
};

// How often and how fast a child that dies is started again. Pure.
class RestartBudget {
 public:
  // At most `count_max` deaths in `window`.
  RestartBudget(int count_max, absl::Duration window)
      : count_max_(count_max), window_(window) {}

  // Counts a death at `now`; returns how long to wait before the next start,
  // or nothing if the budget is used up.
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
    // The command line for the n-th start (0 for the first); [0] is the path of
    // the program.
    std::function<std::vector<std::string>(int start_count)> command;
  };

  explicit Child(Options options) : options_(std::move(options)) {}
  // Kills it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  bool running() const { return pid_ > 0; }
  int start_count() const { return start_count_; }

  // Starts it. Requires: not running.
  //
  // NOT_FOUND: the program is not there or may not be executed. Others: the
  // log cannot be opened, no process can be made.
  absl::Status Start();

  // Looks whether it has ended since the last call; does not wait.
  std::optional<ChildExit> Poll();

  // Sends a signal if it runs.
  void Signal(int signal);

  // Waits until it has ended, at most `timeout`, then kills it.
  void Await(absl::Duration timeout);

  // The last lines of its log, for messages.
  std::string LogTail(int line_count) const;

 private:
  Options options_;
  pid_t pid_ = 0;
  int start_count_ = 0;
};

}  // namespace atl::cli
