// A child process that is spoken to in lines.
//
// Its standard input and output are pipes: the benchmark writes an order, the
// child does it and answers. Its standard error is the caller's.
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
  // Starts `command`, whose first element is the program's path. It is killed
  // when this process dies, however it dies. If `log_path` is given, both
  // output streams go to that file and ReadLine gives nothing.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& command,
      const std::string& log_path = "");

  // Kills and reaps it.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Gives one order. UNAVAILABLE: the child has ended.
  absl::Status WriteLine(absl::string_view line);

  // The child's next answer, without its end of line.
  //
  // UNAVAILABLE: the child has ended. DEADLINE_EXCEEDED: no answer in time.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);

  // ReadLine, and UNKNOWN with the child's words if they are not `expected`.
  absl::Status Expect(absl::string_view expected, absl::Duration timeout);

  // True once the child has ended.
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
