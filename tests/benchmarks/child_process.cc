#include "tests/benchmarks/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace atl::benchmarks {
namespace {

absl::Status Errno(absl::string_view what) {
  return absl::ErrnoToStatus(errno, what);
}

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void Exec(char* const* arguments, int in, int out, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(in, STDIN_FILENO);
  dup2(log >= 0 ? log : out, STDOUT_FILENO);
  if (log >= 0) dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& command, const std::string& log_path) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) return Errno("pipe");
  if (pipe2(from_child, O_CLOEXEC) != 0) return Errno("pipe");
  int log = -1;
  if (!log_path.empty()) {
    log =
        open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) return Errno(log_path);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Errno("fork");
  if (pid == 0) Exec(arguments.data(), to_child[0], from_child[1], log);
  close(to_child[0]);
  close(from_child[1]);
  if (log >= 0) close(log);
  return absl::WrapUnique(
      new ChildProcess(command[0], pid, to_child[1], from_child[0]));
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(to_child_);
  close(from_child_);
}

bool ChildProcess::Ended() {
  if (!reaped_ && waitpid(pid_, nullptr, WNOHANG) == pid_) reaped_ = true;
  return reaped_;
}

absl::Status ChildProcess::WriteLine(absl::string_view line) {
  std::string text = absl::StrCat(line, "\n");
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(to_child_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(absl::StrCat(name_, " has ended"));
    done += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChildProcess::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no answer of ", name_, " within ", absl::FormatDuration(timeout)));
    }
    pollfd ready = {.fd = from_child_, .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, absl::ToInt64Milliseconds(left) + 1);
    if (n < 0 && errno != EINTR) return Errno("poll");
    if (n <= 0) continue;
    char bytes[4096];
    const ssize_t got = read(from_child_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::UnavailableError(absl::StrCat(name_, " has ended"));
    }
    buffer_.append(bytes, got);
  }
}

absl::Status ChildProcess::Expect(absl::string_view expected,
                                  absl::Duration timeout) {
  absl::StatusOr<std::string> line = ReadLine(timeout);
  if (!line.ok()) return line.status();
  if (*line != expected) {
    return absl::UnknownError(
        absl::StrCat(name_, " says \"", *line, "\", not \"", expected, "\""));
  }
  return absl::OkStatus();
}

}  // namespace atl::benchmarks
