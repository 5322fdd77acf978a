#include "cli/volunteer/island_sandbox.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/obs/log.h"
#include "base/sandbox/landlock.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// "PID:DIRECTORY".
constexpr char kMarkVariable[] = "ATOLL_SANDBOX";

// Authorities of servers, in files that the machine's owner chose.
constexpr const char* kAuthorityVariables[] = {
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"};

// Null-terminated pointers into `words`.
std::vector<char*> ToPointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

constexpr char kNoLandlock[] = "this kernel has no Landlock";

absl::Status Unavailable(absl::string_view why) {
  return WithReason(
      WithHint(WithExitCode(absl::FailedPreconditionError(
                                absl::StrCat("--require-sandbox: ", why)),
                            ExitCode::kPreflightFailed),
               "Take Linux 5.13 or later, with `landlock` in "
               "/sys/kernel/security/lsm, or leave the flag out."),
      "SANDBOX_UNAVAILABLE");
}

absl::Status GoOnWithout(absl::string_view why, bool is_required) {
  if (is_required) return Unavailable(why);
  LOG(WARNING) << "no sandbox, because " << why
               << ": a fault of this program could open any file of its user";
  return absl::OkStatus();
}

}  // namespace

SandboxMark ReadSandboxMark(const Environment& environment, int pid) {
  const std::string text = GetVariable(environment, kMarkVariable);
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  int marked = 0;
  if (!absl::SimpleAtoi(parts.first, &marked) || marked != pid) return {};
  return {true, parts.second};
}

IslandPaths FindIslandPaths(const Environment& environment,
                            const std::string& program) {
  IslandPaths paths;
  paths.home = GetVariable(environment, "HOME");
  paths.program = program;
  std::ifstream maps("/proc/self/maps");
  paths.mapped_files = ParseMappedFiles(
      std::string(std::istreambuf_iterator<char>(maps), {}));
  for (const absl::string_view directory :
       absl::StrSplit(GetVariable(environment, "LD_LIBRARY_PATH"), ':')) {
    if (absl::StartsWith(directory, "/")) {
      paths.library_directories.emplace_back(directory);
    }
  }
  const auto devices = PosixFileSystem().List("/dev");
  if (devices.ok()) paths.device_names = *devices;
  for (const char* name : kAuthorityVariables) {
    const std::string path = GetVariable(environment, name);
    if (absl::StartsWith(path, "/")) paths.read.push_back(path);
  }
  // A link to a directory of the program that writes it.
  std::error_code error;
  const std::filesystem::path resolver =
      std::filesystem::canonical("/etc/resolv.conf", error);
  if (!error) paths.read.push_back(resolver.parent_path().string());
  const std::string multi_process =
      GetVariable(environment, "CUDA_MPS_PIPE_DIRECTORY");
  paths.write.push_back(absl::StartsWith(multi_process, "/")
                            ? multi_process
                            : "/tmp/nvidia-mps");
  return paths;
}

absl::Status CheckSandbox() {
  return LandlockAbi() > 0 ? absl::OkStatus() : Unavailable(kNoLandlock);
}

absl::Status EnterSandbox(SandboxRequest request) {
  const int abi = LandlockAbi();
  if (abi == 0) return GoOnWithout(kNoLandlock, request.is_required);
  request.own_directories.push_back(request.temporary_directory);
  for (const std::string& directory : request.own_directories) {
    // The island names the fault, if it needs the directory.
    MakePrivateDirectory(directory).IgnoreError();
    request.paths.write.push_back(directory);
  }
  const absl::Status limited =
      LimitPaths(abi, IslandRules(request.paths), request.hides_sockets);
  if (!limited.ok()) {
    return GoOnWithout(limited.message(), request.is_required);
  }
  for (std::string& argument : request.arguments) {
    if (absl::StartsWith(argument, "atoll://")) argument = "-";
  }
  request.environment[kMarkVariable] =
      absl::StrCat(::getpid(), ":", request.enrolment_directory);
  request.environment["TMPDIR"] = request.temporary_directory;
  std::vector<std::string> variables;
  for (const auto& [name, value] : request.environment) {
    variables.push_back(absl::StrCat(name, "=", value));
  }
  const std::vector<char*> argv = ToPointers(request.arguments);
  const std::vector<char*> envp = ToPointers(variables);
  // By its path, for the name that `ps` shows. An upgrade may have replaced the
  // file.
  ::execve(request.paths.program.c_str(), argv.data(), envp.data());
  ::execve("/proc/self/exe", argv.data(), envp.data());
  return absl::InternalError(absl::StrCat("cannot execute ",
                                          request.paths.program, " again: ",
                                          std::strerror(errno)));
}

absl::Status HintAtSandbox(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status) ||
      GetReason(status) != "PERMISSION_DENIED" ||
      !absl::StrContains(status.message(), std::strerror(EACCES))) {
    return status;
  }
  return WithHint(
      status,
      "The island's sandbox opens only what the command line names, and the "
      "island's own state: give data with --data PATH, and name other files by "
      "their flags.");
}

}  // namespace atl::cli
