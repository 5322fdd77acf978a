#include "worker/engine/cuda_check/ranks.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"
#include "base/status/status_macros.h"
#include "worker/collective/tcp/socket.h"
#include "worker/collective/tcp/tcp_world.h"

namespace atl::engine::check {
namespace {

struct Process {
  pid_t id = -1;
  UniqueFd output;
};

// A port that was free just now.
absl::StatusOr<std::string> FreeRendezvous() {
  ASSIGN_OR_RETURN(const UniqueFd listener,
                   collective::Listen({"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const auto end, collective::LocalEndpoint(listener.get()));
  return absl::StrCat("127.0.0.1:", end.port);
}

absl::StatusOr<Process> Start(const NcclRank& at, absl::string_view part,
                              const std::vector<std::string>& flags) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return absl::InternalError("cannot find this program");
  std::vector<std::string> words = {
      "env",
      // NCCL must treat the rank as a host of its own and connect by loopback.
      absl::StrCat("NCCL_HOSTID=atoll-check-", at.rank),
      "NCCL_SOCKET_IFNAME=lo", std::string(path, static_cast<size_t>(length)),
      absl::StrCat("--rank=", at.rank, "/", at.size),
      absl::StrCat("--rendezvous=", at.rendezvous),
      absl::StrCat("--device=", at.device), absl::StrCat("--only=", part)};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) return absl::ResourceExhaustedError("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  Process process;
  const int error = posix_spawnp(&process.id, "env", &actions, nullptr,
                                 arguments.data(),
                                 environ);  // style-ok(call): handed on
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  process.output = UniqueFd(ends[0]);
  if (error != 0) return absl::InternalError("a rank could not be started");
  return process;
}

// Relays what the ranks print, line by line as it comes, until all have closed
// their outputs. So no rank blocks on a full pipe, and the last line of one that
// hangs is seen.
void RelayAll(const std::vector<Process>& processes, Report& report) {
  std::vector<pollfd> waits;
  std::vector<std::string> rests(processes.size());
  for (const Process& process : processes) {
    waits.push_back({process.output.get(), POLLIN, 0});
  }
  for (size_t open = waits.size(); open > 0;) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t count = ::read(waits[i].fd, bytes, sizeof(bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count > 0) rests[i].append(bytes, static_cast<size_t>(count));
      size_t end;
      while ((end = rests[i].find('\n')) != std::string::npos) {
        report.Relay(rests[i].substr(0, end));
        rests[i].erase(0, end + 1);
      }
      if (count > 0) continue;
      if (!rests[i].empty()) report.Relay(rests[i]);
      waits[i].fd = -1;
      --open;
    }
  }
}

absl::Status Finish(const Process& process) {
  int status = 0;
  if (waitpid(process.id, &status, 0) != process.id || !WIFEXITED(status)) {
    return absl::InternalError("the process was killed");
  }
  if (WEXITSTATUS(status) > 1) {
    return absl::InternalError(
        absl::StrCat("the process exited with code ", WEXITSTATUS(status)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<collective::TcpWorld>> MeetRanks(
    const NcclRank& at) {
  constexpr absl::Duration kTimeout = absl::Seconds(60);
  collective::TcpWorldOptions options;
  options.rendezvous = at.rendezvous;
  options.process_index = at.rank;
  options.process_count = at.size;
  options.layout = "nccl";
  options.secret = "check";
  options.calls_in_the_clear = true;
  options.join_timeout = kTimeout;
  options.world.call_timeout = kTimeout;
  return collective::TcpWorld::Join(std::move(options));
}

void RunNcclRanks(int size, int device, absl::string_view part,
                  const std::vector<std::string>& flags, Report& report) {
  const auto rendezvous = FreeRendezvous();
  if (!rendezvous.ok()) {
    return report.Check(absl::StrCat(part, " rendezvous"), rendezvous.status());
  }
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    auto process = Start({rank, size, *rendezvous, device}, part, flags);
    if (process.ok()) {
      processes.push_back(*std::move(process));
    } else {
      report.Check(absl::StrCat(part, " rank ", rank), process.status());
    }
  }
  RelayAll(processes, report);
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    report.Check(absl::StrCat(part, " ", size, " ranks, process ", rank),
                 Finish(processes[rank]));
  }
}

}  // namespace atl::engine::check
