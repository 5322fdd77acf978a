// A child process that takes orders as lines.
//
// Its standard input and output are pipes: the benchmark writes an order, the
// child executes it and answers. Its standard error is the caller's.
//
// Thread-compatible.

#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::benchmarks {

class ChildProcess {
 public:
  // Starts `command`; its first element is the program's path. The child dies
  // with this process, even after kill -9. With a `log_path`, both output
  // streams go to that file and ReadLine returns nothing.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& command,
      const std::string& log_path = "");

  // Kills and reaps the child.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Sends one order. UNAVAILABLE: the child has ended.
  absl::Status WriteLine(absl::string_view line);

  // Returns the child's next answer, without the end of line.
  //
  // UNAVAILABLE: the child has ended. DEADLINE_EXCEEDED: no answer in time.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);

  // As ReadLine. UNKNOWN: the answer is not `expected`; the message has it.
  absl::Status Expect(absl::string_view expected, absl::Duration timeout);

  bool Ended();

  pid_t pid() const { return pid_; }

 private:
  ChildProcess(std::string name, pid_t pid, int to_child, int from_child)
      : name_(std::move(name)),
        pid_(pid),
        to_child_(to_child),
        from_child_(from_child) {}

  std::string name_;
  pid_t pid_;
  bool reaped_ = false;
  int to_child_;
  int from_child_;
  std::string buffer_;  // Read, but not yet a whole line.
};

}  // namespace atl::benchmarks
