#include "cli/dev/cluster.h"

#include <signal.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr absl::Duration kStopTimeout = absl::Seconds(10);

absl::StatusOr<std::string> FindProgram(const std::string& executable,
                                        const std::string& folder,
                                        const std::string& name) {
  const std::string here = ParentDirectory(executable);
  const std::string installed = absl::StrCat(here, "/", name);
  const std::string built =
      absl::StrCat(ParentDirectory(here), "/", folder, "/", name);
  for (const std::string& path : {installed, built}) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return WithHint(
      WithReason(absl::NotFoundError(absl::StrCat("there is neither ",
                                                  installed, " nor ", built)),
                 "PROGRAM_NOT_FOUND"),
      absl::StrCat(
          "Build //", folder, ":", name,
          ", or give its path with --coordinator-binary and --server-binary."));
}

}  // namespace

absl::StatusOr<Programs> FindPrograms(const std::string& executable) {
  Programs programs;
  programs.atoll = executable;
  ASSIGN_OR_RETURN(programs.coordinator,
                   FindProgram(executable, "coordinator", "atoll-coordinator"));
  ASSIGN_OR_RETURN(programs.server,
                   FindProgram(executable, "server", "atoll-server"));
  return programs;
}

absl::Status Cluster::AddMember(Role role, const std::string& name,
                                const std::string& program,
                                std::vector<std::string> arguments) {
  ASSIGN_OR_RETURN(const std::string path, directory_.MakeChildDirectory(name));
  auto member = std::make_unique<Member>(Member{
      .role = role,
      .child = nullptr,
      .budget =
          RestartBudget(options_.restart_count_max, options_.restart_window)});
  if (role != Role::kIsland) member->port_path = absl::StrCat(path, "/port");
  member->metrics_path = absl::StrCat(path, "/metrics-port");
  std::vector<std::string> first_flags;
  const auto given = options_.first_flags.find(name);
  if (given != options_.first_flags.end()) first_flags = given->second;

  Child::Options child;
  child.name = name;
  child.log_path = absl::StrCat(path, "/log");
  child.pid_path = absl::StrCat(path, "/pid");
  child.command = [program, arguments, first_flags,
                   state = member.get()](int start_count) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    if (!state->port_path.empty()) {
      command.push_back(absl::StrCat("--listen=127.0.0.1:", state->port));
      command.push_back(absl::StrCat("--port-file=", state->port_path));
    }
    command.push_back(
        absl::StrCat("--metrics-listen=127.0.0.1:", state->metrics_port));
    command.push_back(
        absl::StrCat("--metrics-port-file=", state->metrics_path));
    if (start_count == 0) {
      command.insert(command.end(), first_flags.begin(), first_flags.end());
    }
    return command;
  };
  member->child = std::make_unique<Child>(std::move(child));
  members_.push_back(std::move(member));
  return StartMember(*members_.back());
}

absl::Status Cluster::StartMember(Member& member) {
  member.start_time = absl::InfiniteFuture();
  // A port file of an earlier process is stale; a known port is kept.
  if (!member.port_path.empty() && member.port == 0) {
    ::unlink(member.port_path.c_str());
  }
  if (member.metrics_port == 0) ::unlink(member.metrics_path.c_str());
  return member.child->Start();
}

absl::Status Cluster::InitCoordinator(const std::string& data_dir) {
  ASSIGN_OR_RETURN(const std::string path,
                   directory_.MakeChildDirectory("coordinator"));
  Child::Options options;
  options.name = "coordinator's init";
  options.log_path = path + "/log";
  options.pid_path = path + "/pid";
  options.command = [&](int) {
    return std::vector<std::string>{options_.programs.coordinator, "init",
                                    "--data-dir=" + data_dir, "--if-empty"};
  };
  Child child(std::move(options));
  RETURN_IF_ERROR(child.Start());
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  while (absl::Now() < deadline && !options_.stop.stop_requested()) {
    if (const std::optional<ChildExit> exit = child.Poll()) {
      if (exit->signal == 0 && exit->exit_code == 0) return absl::OkStatus();
      return GiveUp(child, absl::StrCat(child.name(), " ", exit->ToString()));
    }
    absl::SleepFor(kTick);
  }
  if (options_.stop.stop_requested()) {
    return absl::CancelledError("stopped while starting");
  }
  return absl::DeadlineExceededError(
      absl::StrCat(child.name(), " does not end after ",
                   absl::FormatDuration(options_.start_timeout)));
}

absl::Status Cluster::StartCoordinator() {
  const std::string data_dir = directory_.File("coordinator/data");
  RETURN_IF_ERROR(InitCoordinator(data_dir));
  RETURN_IF_ERROR(AddMember(Role::kCoordinator, "coordinator",
                            options_.programs.coordinator,
                            {"--data-dir=" + data_dir}));
  return AwaitPorts();
}

absl::Status Cluster::StartServers() {
  for (int i = 0; i < options_.server_count; ++i) {
    const std::string name = absl::StrCat("server-", i);
    RETURN_IF_ERROR(AddMember(
        Role::kServer, name, options_.programs.server,
        {absl::StrCat("--coordinator=", coordinator_address()),
         absl::StrCat("--server-id=", name),
         absl::StrCat("--data-dir=", directory_.File(name), "/data")}));
  }
  return AwaitPorts();
}

absl::Status Cluster::StartIslands(const std::string& run_id) {
  for (int i = 0; i < options_.island_count; ++i) {
    const std::string name = absl::StrCat("island-", i);
    std::vector<std::string> arguments = {
        "join",        coordinator_address(),
        "--run",       run_id,
        "--island-id", name,
        "--dir",       absl::StrCat(directory_.File(name), "/work"),
        "--threads",   absl::StrCat(options_.threads)};
    arguments.insert(arguments.end(), options_.island_flags.begin(),
                     options_.island_flags.end());
    RETURN_IF_ERROR(AddMember(Role::kIsland, name, options_.programs.atoll,
                              std::move(arguments)));
  }
  return absl::OkStatus();
}

absl::Status Cluster::AwaitPorts() {
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  for (;;) {
    RETURN_IF_ERROR(Tend(absl::Now()));
    const Member* missing = nullptr;
    for (auto& member : members_) {
      if (member->port_path.empty() || member->port != 0) continue;
      member->port = ReadPortFile(member->port_path);
      if (member->port == 0) missing = member.get();
    }
    if (missing == nullptr) return absl::OkStatus();
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("stopped while starting");
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(missing->child->name(), " does not serve after ",
                       absl::FormatDuration(options_.start_timeout),
                       "; its log ends:\n", missing->child->LogTail(10)));
    }
    absl::SleepFor(kTick);
  }
}

absl::Status Cluster::Tend(absl::Time now) {
  bool changed = false;
  for (auto& member : members_) {
    if (std::optional<ChildExit> exit = member->child->Poll()) {
      RETURN_IF_ERROR(HandleExit(*member, *exit, now));
      changed = changed || member->ended;
    }
    if (now >= member->start_time) RETURN_IF_ERROR(StartMember(*member));
    if (member->metrics_port == 0) {
      member->metrics_port = ReadPortFile(member->metrics_path);
      changed = changed || member->metrics_port != 0;
    }
  }
  return changed ? WriteTargets() : absl::OkStatus();
}

absl::Status Cluster::WriteTargets() {
  Json targets = Json::array();
  for (const auto& member : members_) {
    if (member->metrics_port == 0 || member->ended) continue;
    const std::string& name = member->child->name();
    Json labels;
    switch (member->role) {
      case Role::kCoordinator:
        labels["job"] = "atoll-coordinator";
        break;
      case Role::kServer:
        labels["job"] = "atoll-server";
        labels["server"] = name;
        break;
      case Role::kIsland:
        labels["job"] = "atoll-island";
        break;
    }
    labels["instance"] = name;
    targets.push_back(
        {{"targets", {absl::StrCat("127.0.0.1:", member->metrics_port)}},
         {"labels", std::move(labels)}});
  }
  return WriteFileAtomically(PosixFileSystem(),
                             directory_.File("prometheus-targets.json"),
                             targets.dump(2) + "\n");
}

absl::Status Cluster::HandleExit(Member& member, const ChildExit& exit,
                                 absl::Time now) {
  const bool clean = exit.signal == 0 && exit.exit_code == 0;
  if (member.role == Role::kIsland && clean) {
    member.ended = true;
    return absl::OkStatus();
  }
  const std::string what =
      absl::StrCat(member.child->name(), " ", exit.ToString());
  if (!options_.restart) {
    Note(absl::StrCat(what, "; not restarted"));
    member.ended = true;
    return absl::OkStatus();
  }
  // A restart does not repair a wrong command line or run.
  if (member.role == Role::kIsland &&
      (exit.exit_code == 2 || exit.exit_code == 4)) {
    return GiveUp(*member.child, what);
  }
  const std::optional<absl::Duration> delay = member.budget.Die(now);
  if (!delay.has_value()) {
    return GiveUp(*member.child,
                  absl::StrCat(what, ", for the ",
                               options_.restart_count_max + 1, "th time in ",
                               absl::FormatDuration(options_.restart_window)));
  }
  Note(absl::StrCat(what, "; restarting it"));
  member.start_time = now + *delay;
  return absl::OkStatus();
}

absl::Status Cluster::GiveUp(const Child& child, absl::string_view why) const {
  return WithHint(WithReason(absl::AbortedError(absl::StrCat(
                                 why, "; its log ends:\n", child.LogTail(10))),
                             "CHILD_DIED"),
                  absl::StrCat("The whole log is ", child.log_path(), "."));
}

bool Cluster::IslandsEnded() const {
  for (const auto& member : members_) {
    if (member->role == Role::kIsland && !member->ended) return false;
  }
  return true;
}

void Cluster::Stop() {
  for (const Role role : {Role::kIsland, Role::kServer, Role::kCoordinator}) {
    for (auto& member : members_) {
      if (member->role != role) continue;
      member->start_time = absl::InfiniteFuture();
      member->child->Signal(role == Role::kIsland ? SIGKILL : SIGTERM);
    }
    for (auto& member : members_) {
      if (member->role == role) member->child->Await(kStopTimeout);
    }
  }
}

std::string Cluster::coordinator_address() const {
  for (const auto& member : members_) {
    if (member->role == Role::kCoordinator && member->port != 0) {
      return absl::StrCat("127.0.0.1:", member->port);
    }
  }
  return "";
}

std::vector<std::string> Cluster::server_addresses() const {
  std::vector<std::string> addresses;
  for (const auto& member : members_) {
    if (member->role == Role::kServer && member->port != 0) {
      addresses.push_back(absl::StrCat("127.0.0.1:", member->port));
    }
  }
  return addresses;
}

void Cluster::Note(const std::string& text) const {
  if (options_.on_note) options_.on_note(text);
}

}  // namespace atl::cli
