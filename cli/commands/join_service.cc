#include "cli/commands/join_service.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/output/error.h"
#include "cli/volunteer/service_unit.h"

namespace atl::cli {
namespace {

// Variables that the service keeps besides ATOLL_*: no secrets of clouds.
const std::set<std::string>& KeptVariables() {
  static const auto* const kNames = new std::set<std::string>{
      "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HTTPS_PROXY",
      "https_proxy",    "NO_PROXY",        "no_proxy"};
  return *kNames;
}

std::string Find(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

// Returns where systemd looks for this user's units.
absl::StatusOr<std::string> UnitDirectory(const Environment& environment) {
  const std::string config = Find(environment, "XDG_CONFIG_HOME");
  if (!config.empty()) return absl::StrCat(config, "/systemd/user");
  const std::string home = Find(environment, "HOME");
  if (home.empty()) {
    return absl::FailedPreconditionError(
        "neither HOME nor XDG_CONFIG_HOME says where units are");
  }
  return absl::StrCat(home, "/.config/systemd/user");
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

std::string ValueOf(const flags::Command& command, const std::string& flag) {
  const std::vector<std::string> values = command.Values(flag);
  return values.empty() ? "" : values[0];
}

}  // namespace

absl::Status CheckService(const coordinator::ClientOptions& coordinator,
                          const std::string& run_id, const RunLimits& limits,
                          const worker::LocalDataRights& rights) {
  ASSIGN_OR_RETURN(const auto client, coordinator::MakeClient(coordinator));
  v1::GetRunRequest request;
  request.set_run_id(run_id);
  const absl::StatusOr<v1::GetRunResponse> run =
      client->Call(&v1::RunService::Stub::GetRun, request);
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
  unit.command = {Absolute(context.executable), "join"};
  const std::string address = ValueOf(command, "address");
  if (!address.empty() && !IsJoinString(address)) {
    unit.command.push_back(address);
  }
  unit.command.push_back(absl::StrCat("--run=", request.run_id));
  for (std::string& flag : command.GivenFlags({"run", "service", "format"})) {
    unit.command.push_back(std::move(flag));
  }
  unit.working_directory = Absolute(".");
  for (const auto& [name, value] : context.environment) {
    if (KeptVariables().contains(name) || absl::StartsWith(name, "ATOLL_")) {
      unit.environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  const std::string cache = ValueOf(command, "--data-cache");
  unit.writable_directories = {
      Absolute(context.state_directory),
      Absolute(cache.empty() ? DefaultDataCache(context.state_directory)
                             : cache)};
  std::string trainer = ValueOf(command, "--trainer");
  if (!trainer.empty()) {
    // The island makes the socket, unix:PATH.
    trainer = std::filesystem::path(
                  Absolute(trainer.substr(trainer.find(':') + 1)))
                  .parent_path()
                  .string();
  }
  for (const std::string& path :
       {request.work_directory, ValueOf(command, "--optimizer-dir"), trainer}) {
    if (!path.empty()) unit.writable_directories.push_back(Absolute(path));
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
