#include "cli/commands/join_sandbox.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port/host_port.h"
#include "base/io/files.h"
#include "cli/volunteer/local_socket.h"

namespace atl::cli {
namespace {

// The user's keys for data in buckets. A projected token is replaced, as a file
// of the same directory.
std::vector<std::string> CredentialPaths(const Environment& environment) {
  std::vector<std::string> paths;
  for (const char* name : {"AWS_WEB_IDENTITY_TOKEN_FILE",
                           "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}) {
    const std::string file = GetVariable(environment, name);
    if (!file.empty()) paths.push_back(ParentDirectory(AbsolutePath(file)));
  }
  const std::string file =
      GetVariable(environment, "AWS_SHARED_CREDENTIALS_FILE");
  const std::string home = GetVariable(environment, "HOME");
  if (!file.empty()) {
    paths.push_back(AbsolutePath(file));
  } else if (!home.empty()) {
    paths.push_back(absl::StrCat(home, "/.aws/credentials"));
  }
  return paths;
}

}  // namespace

bool NeedsSandbox(const worker::RunIslandOptions& island) {
  const absl::StatusOr<HostPort> address =
      ParseHostPort(island.coordinator_address);
  return !island.security.tls.empty() || !address.ok() ||
         !IsLoopbackHost(address->host);
}

SandboxRequest MakeSandboxRequest(const Context& context,
                                  const worker::RunIslandOptions& island,
                                  const std::string& enrolment_directory,
                                  const std::string& port_file) {
  SandboxRequest request;
  request.environment = context.environment;
  request.arguments = context.arguments;
  request.enrolment_directory = enrolment_directory;
  IslandPaths& paths = request.paths;
  paths = FindIslandPaths(context.environment, context.executable);
  if (!island.data_path.empty()) {
    paths.data.push_back(AbsolutePath(island.data_path));
  }
  for (const std::string& root : island.data_roots) paths.data.push_back(root);
  const rpc::TlsFiles& tls = island.security.tls;
  for (const std::string& path :
       {tls.dir, tls.ca, tls.cert, tls.key, island.rendezvous_secret_path,
        context.profile_path, ConfigDirectory(context.environment)}) {
    if (!path.empty()) paths.read.push_back(AbsolutePath(path));
  }
  if (context.settings.has_data_credentials()) {
    for (std::string& path : CredentialPaths(context.environment)) {
      paths.read.push_back(std::move(path));
    }
  }
  if (!enrolment_directory.empty()) {
    // A renewal writes there.
    paths.write.push_back(AbsolutePath(enrolment_directory));
  }
  if (!island.trainer_path.empty()) {
    paths.sockets.push_back(ParentDirectory(AbsolutePath(island.trainer_path)));
  }
  if (!port_file.empty()) {
    paths.write.push_back(ParentDirectory(AbsolutePath(port_file)));
  }
  std::vector<std::string>& own = request.own_directories;
  own = {AbsolutePath(island.work_directory),
         AbsolutePath(island.data_cache_directory),
         AbsolutePath(LocalDirectory(context.state_directory))};
  if (!island.place.optimizer_directory.empty()) {
    own.push_back(AbsolutePath(island.place.optimizer_directory));
  }
  // The processes of an island make their secret in the state directory, and
  // NCCL talks over abstract sockets.
  if (island.place.process_count > 1) {
    own.push_back(AbsolutePath(context.state_directory));
    request.hides_sockets = false;
  }
  if (absl::StartsWith(island.place.device, "cuda") && !paths.home.empty()) {
    own.push_back(absl::StrCat(paths.home, "/.nv"));
  }
  request.temporary_directory =
      absl::StrCat(AbsolutePath(island.work_directory), "/tmp");
  return request;
}

}  // namespace atl::cli
