#include "cli/dev/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/unique_fd.h"

namespace atl::cli {
namespace {

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void Exec(char* const* argv, int log_fd, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl.
  if (::getppid() != parent) ::_exit(125);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = ::open("/dev/null", O_RDONLY);
  if (null_fd >= 0) ::dup2(null_fd, 0);
  ::dup2(log_fd, 1);
  ::dup2(log_fd, 2);
  ::execv(argv[0], argv);
  const char* reason = ::strerror(errno);
  [[maybe_unused]] ssize_t written = ::write(2, reason, ::strlen(reason));
  ::_exit(125);
}

}  // namespace

std::string ChildExit::ToString() const {
  if (signal != 0) return absl::StrCat("was killed by signal ", signal);
  return absl::StrCat("exited with ", exit_code);
}

std::optional<absl::Duration> RestartBudget::Die(absl::Time now) {
  while (!deaths_.empty() && now - deaths_.front() > window_) {
    deaths_.pop_front();
  }
  deaths_.push_back(now);
  const int count = static_cast<int>(deaths_.size());
  if (count > count_max_) return std::nullopt;
  // A single kill is repaired at once; repeated deaths are slowed down.
  if (count <= 3) return absl::ZeroDuration();
  return std::min(absl::Milliseconds(100) * (1 << std::min(count - 4, 5)),
                  absl::Seconds(2));
}

Child::~Child() {
  Signal(SIGKILL);
  Await(absl::Seconds(5));
}

absl::Status Child::Start() {
  std::vector<std::string> command = options_.command(start_count_);
  if (::access(command[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(command[0], ": ", ::strerror(errno)));
  }
  const int log_fd = ::open(options_.log_path.c_str(),
                            O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW |
                                O_CLOEXEC,
                            0644);
  if (log_fd < 0) {
    return absl::InternalError(
        absl::StrCat(options_.log_path, ": ", ::strerror(errno)));
  }
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Exec(argv.data(), log_fd, parent);
  const int fork_errno = errno;
  ::close(log_fd);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", name(), ": ", ::strerror(fork_errno)));
  }
  pid_ = pid;
  ++start_count_;
  return WritePid();
}

absl::Status Child::WritePid() const {
  const UniqueFd fd(::open(
      options_.pid_path.c_str(),
      O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  const std::string text = absl::StrCat(pid_, "\n");
  if (fd.valid() && ::write(fd.get(), text.data(), text.size()) ==
                        static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(options_.pid_path, ": ", ::strerror(errno)));
}

std::optional<ChildExit> Child::Poll() {
  if (!running()) return std::nullopt;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  ::unlink(options_.pid_path.c_str());
  ChildExit result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

void Child::Signal(int signal) {
  if (running()) ::kill(pid_, signal);
}

void Child::Await(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (running() && !Poll().has_value()) {
    if (absl::Now() > deadline) Signal(SIGKILL);
    absl::SleepFor(absl::Milliseconds(10));
  }
}

std::string Child::LogTail(int line_count) const {
  constexpr std::streamoff kBytesMax = 8192;
  std::ifstream file(options_.log_path, std::ios::binary);
  if (!file) return "";
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kBytesMax));
  std::deque<std::string> lines;
  std::string line;
  while (std::getline(file, line)) {
    lines.push_back(line);
    if (static_cast<int>(lines.size()) > line_count) lines.pop_front();
  }
  std::string text;
  for (const std::string& kept : lines) absl::StrAppend(&text, kept, "\n");
  return text;
}

}  // namespace atl::cli
