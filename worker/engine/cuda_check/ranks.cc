#include "worker/engine/cuda_check/ranks.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "worker/collective/tcp/socket.h"
#include "worker/collective/tcp/tcp_world.h"

namespace atl::engine::check {
namespace {

struct Process {
  pid_t id = -1;
  std::FILE* output = nullptr;
};

// A port that was free just now.
absl::StatusOr<std::string> FreeRendezvous() {
  ASSIGN_OR_RETURN(const UniqueFd listener,
                   collective::Listen({"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const auto end, collective::LocalEndpoint(listener.get()));
  return absl::StrCat("127.0.0.1:", end.port);
}

absl::StatusOr<Process> Start(const NcclRank& at, absl::string_view part,
                              uint64_t seed) {
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
      absl::StrCat("--device=", at.device), absl::StrCat("--only=", part),
      absl::StrCat("--seed=", seed)};
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
  if (error != 0) {
    close(ends[0]);
    return absl::InternalError("a rank could not be started");
  }
  process.output = fdopen(ends[0], "r");
  return process;
}

// Relays the rank's output until the rank ends.
absl::Status Finish(const Process& process, Report& report) {
  char* line = nullptr;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&line, &capacity, process.output)) > 0) {
    if (line[length - 1] == '\n') --length;
    report.Relay({line, static_cast<size_t>(length)});
  }
  std::free(line);
  std::fclose(process.output);
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

void RunNcclRanks(int size, int device, absl::string_view part, uint64_t seed,
                  Report& report) {
  const auto rendezvous = FreeRendezvous();
  if (!rendezvous.ok()) {
    return report.Check(absl::StrCat(part, " rendezvous"), rendezvous.status());
  }
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    auto process = Start({rank, size, *rendezvous, device}, part, seed);
    if (process.ok()) {
      processes.push_back(*process);
    } else {
      report.Check(absl::StrCat(part, " rank ", rank), process.status());
    }
  }
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    report.Check(absl::StrCat(part, " ", size, " ranks, process ", rank),
                 Finish(processes[rank], report));
  }
}

}  // namespace atl::engine::check
