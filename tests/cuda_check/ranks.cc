#include "tests/cuda_check/ranks.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::engine::check {
namespace {

struct Process {
  pid_t id = -1;
  UniqueFd output;
  std::string rest;      // An unfinished line.
  std::string standing;  // The name of the check that has begun, as JSON.
  absl::Time end;        // When its output ended.
  bool was_cut = false;
};

// A port that was free just now.
absl::StatusOr<std::string> FreeRendezvous() {
  ASSIGN_OR_RETURN(const UniqueFd listener, net::Listen({"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const auto end, net::LocalAddress(listener.get()));
  return absl::StrCat("127.0.0.1:", end.port);
}

absl::StatusOr<Process> Start(const NcclRank& at,
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
      absl::StrCat("--device=", at.device)};
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
  const int error =
      posix_spawnp(&process.id, "env", &actions, nullptr, arguments.data(),
                   environ);  // style-ok(call): handed on
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  process.output = UniqueFd(ends[0]);
  if (error != 0) return absl::InternalError("a rank could not be started");
  return process;
}

void Relay(absl::string_view line, Process& from, Report& report) {
  report.Relay(line);
  if (absl::ConsumePrefix(&line, "{\"begin\": ")) {
    from.standing = std::string(absl::StripSuffix(line, "}"));
  } else if (absl::ConsumePrefix(&line, "{\"check\": ") &&
             absl::StartsWith(line, from.standing)) {
    from.standing.clear();
  }
}

// Reads and relays what has come. False at the end of the output.
bool Read(Process& from, Report& report) {
  char bytes[4096];
  const ssize_t count = ::read(from.output.get(), bytes, sizeof(bytes));
  if (count < 0 && errno == EINTR) return true;
  if (count > 0) from.rest.append(bytes, static_cast<size_t>(count));
  size_t end;
  while ((end = from.rest.find('\n')) != std::string::npos) {
    Relay(from.rest.substr(0, end), from, report);
    from.rest.erase(0, end + 1);
  }
  if (count > 0) return true;
  if (!from.rest.empty()) report.Relay(from.rest);
  return false;
}

int MillisecondsUntil(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const absl::Duration left = std::clamp(deadline - SystemClock().Now(),
                                         absl::ZeroDuration(), absl::Hours(1));
  return static_cast<int>(
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

// Relays each line that a rank prints, until all ranks have closed their
// outputs. So no rank blocks on a full pipe, and the last line of a rank that
// hangs is seen. Kills the ranks that are left at a limit.
void RelayAll(const RankRun& run, std::vector<Process>& processes,
              Report& report) {
  std::vector<pollfd> waits;
  for (const Process& process : processes) {
    waits.push_back({process.output.get(), POLLIN, 0});
  }
  absl::Time deadline = SystemClock().Now() + run.limit;
  for (size_t open = waits.size(); open > 0;) {
    if (::poll(waits.data(), waits.size(), MillisecondsUntil(deadline)) < 0) {
      continue;
    }
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      if (Read(processes[i], report)) continue;
      waits[i].fd = -1;
      --open;
      processes[i].end = SystemClock().Now();
      deadline = std::min(deadline, processes[i].end + run.end_limit);
    }
    if (SystemClock().Now() < deadline) continue;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0) continue;
      processes[i].was_cut = true;
      (void)::kill(processes[i].id, SIGKILL);
    }
    deadline = absl::InfiniteFuture();
  }
}

absl::Status Finish(const Process& process, bool is_victim) {
  const std::string where = process.standing.empty()
                                ? "outside of a check"
                                : absl::StrCat("in ", process.standing);
  int status = 0;
  if (waitpid(process.id, &status, 0) != process.id) {
    return absl::InternalError("the process is not there");
  }
  if (process.was_cut) {
    return absl::DeadlineExceededError(
        absl::StrCat("killed at the limit: it hung ", where));
  }
  if (WIFSIGNALED(status)) {
    if (is_victim && WTERMSIG(status) == SIGKILL) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("ended by signal ", WTERMSIG(status), " ", where));
  }
  if (is_victim) return absl::InternalError("it did not kill itself");
  if (WEXITSTATUS(status) > 1) {
    return absl::InternalError(absl::StrCat("the process exited with code ",
                                            WEXITSTATUS(status), " ", where));
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

void RunRanks(const RankRun& run, Report& report) {
  const auto result = [&](absl::string_view what, const absl::Status& status) {
    const std::string name = absl::StrCat(run.name, ", ", what);
    run.is_control ? report.Control(name, status) : report.Check(name, status);
  };
  std::string rendezvous = run.rendezvous;
  if (rendezvous.empty()) {
    auto free = FreeRendezvous();
    if (!free.ok()) return result("rendezvous", free.status());
    rendezvous = *std::move(free);
  }
  std::vector<Process> processes;
  for (int rank = 0; rank < run.size; ++rank) {
    auto process = Start({rank, run.size, rendezvous, run.device}, run.flags);
    if (!process.ok()) {
      result(absl::StrCat("start of rank ", rank), process.status());
      break;
    }
    processes.push_back(*std::move(process));
  }
  RelayAll(run, processes, report);
  absl::Time first = absl::InfiniteFuture();
  for (const Process& process : processes) first = std::min(first, process.end);
  std::vector<double> ends;
  for (int rank = 0; rank < static_cast<int>(processes.size()); ++rank) {
    ends.push_back(absl::ToDoubleSeconds(processes[rank].end - first));
    result(absl::StrCat("process ", rank),
           Finish(processes[rank], rank == run.victim));
  }
  report.Measure(absl::StrCat(run.name, ", ends"),
                 {{"seconds_after_the_first",
                   absl::StrCat("[", absl::StrJoin(ends, ", "), "]")}});
}

}  // namespace atl::engine::check
