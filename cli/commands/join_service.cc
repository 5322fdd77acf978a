#include "cli/commands/join_service.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/io/unique_fd.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr size_t kSaidBytesMax = 2000;
// The first line of a unit of ours.
constexpr char kMark[] = "# Made by `atoll join --service`.\n";

// A word of a unit file: quoted, with systemd's specifiers and variables
// escaped.
absl::StatusOr<std::string> Quote(const std::string& word, bool is_command) {
  std::string quoted = "\"";
  for (const char c : word) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(
          "a value with a control character cannot be part of a service");
    }
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '%' || (c == '$' && is_command)) quoted += c;
    quoted += c;
  }
  return quoted + "\"";
}

absl::StatusOr<std::string> QuoteAll(const std::vector<std::string>& words,
                                     bool is_command) {
  std::string line;
  for (const std::string& word : words) {
    ASSIGN_OR_RETURN(const std::string quoted, Quote(word, is_command));
    absl::StrAppend(&line, line.empty() ? "" : " ", quoted);
  }
  return line;
}

// True if one is in a directory that PrivateTmp would hide.
bool UsesTmp(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (absl::StartsWith(path, "/tmp/") || absl::StartsWith(path, "/var/tmp/")) {
      return true;
    }
  }
  return false;
}

// Runs `systemctl --user ARGUMENTS`, found on PATH, to its end.
// FAILED_PRECONDITION: it is missing, or fails; the message has its output.
absl::Status Systemctl(const std::vector<std::string>& arguments,
                       std::vector<std::string>& environment) {
  std::vector<std::string> words = {"systemctl", "--user"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (std::string& variable : environment)
    variables.push_back(variable.data());
  variables.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe");
  const UniqueFd reads(ends[0]);
  UniqueFd writes(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writes.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, writes.get(), 2);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr,
                                   argv.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("systemctl cannot be run: ", std::strerror(error)));
  }
  writes = UniqueFd();
  std::string said;
  char bytes[512];
  ssize_t length = 0;
  while ((length = ::read(reads.get(), bytes, sizeof(bytes))) != 0) {
    if (length < 0 && errno != EINTR) break;
    if (length > 0 && said.size() < kSaidBytesMax) said.append(bytes, length);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("`systemctl --user ", arguments[0],
                   "` failed: ", absl::StripAsciiWhitespace(said)));
}

// Variables that the service keeps besides ATOLL_*: no secrets of clouds.
const std::set<std::string>& KeptVariables() {
  static const auto* const kNames = new std::set<std::string>{
      "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HTTPS_PROXY",
      "https_proxy",    "NO_PROXY",        "no_proxy"};
  return *kNames;
}

// Returns where systemd looks for this user's units.
absl::StatusOr<std::string> UnitDirectory(const Environment& environment) {
  const std::string config = ConfigDirectory(environment);
  if (config.empty()) {
    return absl::FailedPreconditionError(
        "neither HOME nor XDG_CONFIG_HOME says where units are");
  }
  return absl::StrCat(ParentDirectory(config), "/systemd/user");
}

std::string ValueOf(const flags::Command& command, const std::string& flag) {
  const std::vector<std::string> values = command.Values(flag);
  return values.empty() ? "" : values[0];
}

}  // namespace

std::string UnitName(const std::string& run_id) {
  return absl::StrCat("atoll-", run_id, ".service");
}

// Exit codes that a restart cannot mend: 0 the run is complete or its user has
// finished; 2, 4 the command or a setting; 7 certificates; 8 no such run; 9 the
// run's state; 10 the machine.
absl::StatusOr<std::string> UnitText(const ServiceUnit& unit) {
  // systemd expands no variables in the program's path.
  ASSIGN_OR_RETURN(const std::string program, Quote(unit.command[0], false));
  ASSIGN_OR_RETURN(
      const std::string arguments,
      QuoteAll({unit.command.begin() + 1, unit.command.end()}, true));
  ASSIGN_OR_RETURN(const std::string writable,
                   QuoteAll(unit.writable_directories, false));
  // This value is a path, not a list of words.
  std::string directory = unit.working_directory;
  RETURN_IF_ERROR(Quote(directory, false).status());
  for (size_t at = 0; (at = directory.find('%', at)) != std::string::npos;) {
    directory.insert(at, 1, '%');
    at += 2;
  }
  std::string text = absl::StrCat(
      kMark,
      "[Unit]\n"
      "Description=An Atoll island in the run ",
      unit.run_id,
      "\n"
      "StartLimitIntervalSec=0\n"
      "\n"
      "[Service]\n"
      "ExecStart=",
      program, " ", arguments,
      "\n"
      "WorkingDirectory=",
      directory, "\n");
  for (const std::string& variable : unit.environment) {
    ASSIGN_OR_RETURN(const std::string quoted, Quote(variable, false));
    absl::StrAppend(&text, "Environment=", quoted, "\n");
  }
  absl::StrAppend(&text,
                  "Restart=always\n"
                  "RestartSec=30\n"
                  "RestartPreventExitStatus=0 2 4 7 8 9 10\n"
                  "SuccessExitStatus=12\n"
                  "TimeoutStopSec=120\n"
                  "CPUWeight=idle\n"
                  "Nice=",
                  unit.nice, "\n");
  if (unit.memory_bytes > 0) {
    absl::StrAppend(&text, "MemoryMax=", unit.memory_bytes, "\n");
  }
  absl::StrAppend(
      &text,
      "PrivateUsers=yes\n"
      "NoNewPrivileges=yes\n"
      "ProtectSystem=strict\n"
      "ProtectHome=read-only\n"
      "ReadWritePaths=",
      writable,
      "\n"
      "PrivateTmp=",
      UsesTmp(unit.writable_directories) ? "no" : "yes",
      "\n"
      "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n"
      "RestrictNamespaces=yes\n"
      "RestrictSUIDSGID=yes\n"
      "SystemCallArchitectures=native\n"
      "LockPersonality=yes\n"
      "\n"
      "[Install]\n"
      "WantedBy=default.target\n");
  return text;
}

absl::Status InstallUnit(const ServiceUnit& unit, const std::string& directory,
                         std::vector<std::string> environment) {
  ASSIGN_OR_RETURN(const std::string text, UnitText(unit));
  const absl::Status found = Systemctl({"show-environment"}, environment);
  if (!found.ok()) {
    return WithHint(
        Annotate(found, "there is no systemd for this user"),
        "Log in (not by su or sudo), or run `loginctl enable-linger` first. "
        "Without systemd start `atoll join` by your own supervisor.");
  }
  const std::string name = UnitName(unit.run_id);
  FileSystem& files = PosixFileSystem();
  RETURN_IF_ERROR(files.CreateDirectories(directory));
  const absl::StatusOr<std::string> earlier = ReadFileIn(directory, name);
  if (!absl::IsNotFound(earlier.status()) &&
      !(earlier.ok() && absl::StartsWith(*earlier, kMark))) {
    return WithHint(
        WithReason(absl::AlreadyExistsError(absl::StrCat(
                       FileIn(directory, name),
                       " exists, and no `atoll join --service` made it")),
                   "NOT_OURS"),
        "Move it away, then repeat.");
  }
  for (const std::string& path : unit.writable_directories) {
    RETURN_IF_ERROR(MakePrivateDirectory(path));
  }
  RETURN_IF_ERROR(WriteFileIn(directory, name, text));
  absl::Status started = Systemctl({"daemon-reload"}, environment);
  if (started.ok()) started = Systemctl({"enable", name}, environment);
  // Restarts an earlier service of this name with the new flags.
  if (started.ok()) started = Systemctl({"restart", name}, environment);
  if (started.ok()) return absl::OkStatus();
  if (earlier.ok()) {
    WriteFileIn(directory, name, *earlier).IgnoreError();
  } else {
    Systemctl({"disable", name}, environment).IgnoreError();
    files.Remove(FileIn(directory, name)).IgnoreError();
  }
  Systemctl({"daemon-reload"}, environment).IgnoreError();
  return started;
}

absl::Status CheckService(const coordinator::ClientOptions& coordinator,
                          const std::string& run_id, const RunLimits& limits,
                          const worker::LocalDataRights& rights) {
  ASSIGN_OR_RETURN(const auto client, coordinator::MakeClient(coordinator));
  const absl::StatusOr<v1::GetRunResponse> run = client->GetRun(run_id);
  if (!run.ok()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRunSize(run->run().spec(), limits));
  return worker::FindDataPlace(run->run().spec().data(), rights).status();
}

absl::Status InstallService(Context& context, const flags::Command& command,
                            const ServiceRequest& request) {
  if (request.run_id.empty()) {
    return UsageError("--service needs --run or a join string",
                      "Name the run that the service joins.");
  }
  ServiceUnit unit;
  unit.run_id = request.run_id;
  unit.command = {AbsolutePath(context.executable), "join"};
  const std::string address = ValueOf(command, "address");
  if (!address.empty() && !IsJoinString(address)) {
    unit.command.push_back(address);
  }
  unit.command.push_back(absl::StrCat("--run=", request.run_id));
  for (std::string& flag : command.GivenFlags({"run", "service", "format"})) {
    unit.command.push_back(std::move(flag));
  }
  unit.working_directory = AbsolutePath(".");
  for (const auto& [name, value] : context.environment) {
    if (KeptVariables().contains(name) || absl::StartsWith(name, "ATOLL_")) {
      unit.environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  const std::string cache = ValueOf(command, "--data-cache");
  unit.writable_directories = {
      AbsolutePath(context.state_directory),
      AbsolutePath(cache.empty() ? DefaultDataCache(context.state_directory)
                                 : cache)};
  std::string trainer = ValueOf(command, "--trainer");
  if (!trainer.empty()) {
    // The island makes the socket, unix:PATH.
    trainer = std::filesystem::path(
                  AbsolutePath(trainer.substr(trainer.find(':') + 1)))
                  .parent_path()
                  .string();
  }
  for (const std::string& path :
       {request.work_directory, ValueOf(command, "--optimizer-dir"), trainer}) {
    if (!path.empty()) unit.writable_directories.push_back(AbsolutePath(path));
  }
  unit.nice = request.nice;
  unit.memory_bytes = request.memory_bytes;
  ASSIGN_OR_RETURN(const std::string directory,
                   UnitDirectory(context.environment));
  std::vector<std::string> environment;
  for (const auto& [name, value] : context.environment) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  RETURN_IF_ERROR(InstallUnit(unit, directory, std::move(environment)));
  const std::string name = UnitName(request.run_id);
  context.output().Print(
      Json{{"run_id", request.run_id},
           {"unit", name},
           {"path", absl::StrCat(directory, "/", name)}},
      absl::StrCat(
          "The service ", name,
          " runs. It starts when you log in.\n"
          "  atoll local status                          what it does\n"
          "  atoll local pause --for 2h                  pause it\n"
          "  journalctl --user -u ",
          name,
          "   its log\n"
          "  loginctl enable-linger                      run without a login\n"
          "Remove it:\n"
          "  systemctl --user disable --now ",
          name,
          "\n"
          "  rm ",
          directory, "/", name, "\n"));
  return absl::OkStatus();
}

}  // namespace atl::cli
