#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flags/flags.h"
#include "base/io/posix_file_system.h"
#include "base/layout/ids.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_commands.h"
#include "cli/ca/ca_files.h"
#include "cli/ca/secret_publisher.h"
#include "cli/output/error.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr char kCaDirectory[] = "ca";
constexpr char kOpaque[] = "Opaque";  // The type of the CA's Secrets.
// Where a pod has its service account.
constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";

struct PublishOptions {
  std::string from;
  std::string existing;
  std::string name_space;
  std::string prefix;
  std::vector<std::string> labels;
  KubernetesApi api;
};

absl::Status CheckIds(const PublishOptions& options) {
  for (const auto& [flag, id] : {std::pair{"--namespace", options.name_space},
                                 std::pair{"--prefix", options.prefix}}) {
    const absl::Status status = ValidateId(flag, id);
    if (!status.ok()) return UsageError(status.message(), "");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    const std::pair<std::string, std::string> label =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (label.first.empty() || label.first == text) {
      return UsageError(
          absl::StrCat("--label \"", text, "\" is not of the form KEY=VALUE"),
          "");
    }
    labels.insert(label);
  }
  return labels;
}

// The name of the root's certificate in a directory.
const char* RootFile(const std::string& directory) {
  return HoldsFile(directory, kRootCertFile) ? kRootCertFile : kCaCertFile;
}

// The Secret of the subdirectory `id` of `from`.
absl::StatusOr<Secret> ReadSecret(const PublishOptions& options,
                                  const std::string& id) {
  const bool is_ca = id == kCaDirectory;
  Secret secret;
  secret.name = absl::StrCat(options.prefix, "-", id, is_ca ? "" : "-tls");
  secret.type = is_ca ? kOpaque : "kubernetes.io/tls";
  ASSIGN_OR_RETURN(secret.labels, ParseLabels(options.labels));
  const std::string directory = absl::StrCat(options.from, "/", id);
  using Names = std::vector<const char*>;
  // The root's key stays here: nothing in the cluster needs it. A CA of the
  // older kind signs with it.
  const bool has_lower_cas = HoldsFile(directory, kServiceCaCertFile);
  for (const char* file :
       is_ca ? Names{RootFile(directory)}
             : Names{kTlsCertFile, kTlsKeyFile, kCaCertFile}) {
    ASSIGN_OR_RETURN(secret.data[file], ReadFileIn(directory, file));
  }
  for (const char* file :
       !is_ca          ? Names{kIslandCaCertFile, kIslandCaKeyFile}
       : has_lower_cas ? Names{kServiceCaCertFile, kServiceCaKeyFile,
                               kIslandCaCertFile, kIslandCaKeyFile, kIssuedFile}
                       : Names{kCaKeyFile, kIssuedFile}) {
    if (!HoldsFile(directory, file)) continue;
    ASSIGN_OR_RETURN(secret.data[file], ReadFileIn(directory, file));
  }
  return secret;
}

// One Secret for each subdirectory of `from`.
absl::StatusOr<std::vector<Secret>> ReadSecrets(const PublishOptions& options) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids,
                   PosixFileSystem().List(options.from));
  // The CA first: if this ends half-way, the next `atoll ca init --existing`
  // must find the CA of the Secrets that are there.
  std::stable_partition(
      ids.begin(), ids.end(),
      [](const std::string& id) { return id == kCaDirectory; });
  std::vector<Secret> secrets;
  for (const std::string& id : ids) {
    RETURN_IF_ERROR(ValidateId(options.from, id));
    ASSIGN_OR_RETURN(Secret secret, ReadSecret(options, id));
    secrets.push_back(std::move(secret));
    if (id != kCaDirectory) continue;
    const std::string directory = absl::StrCat(options.from, "/", id);
    if (!HoldsFile(directory, kCrlFile)) continue;
    Secret revoked;
    revoked.name = absl::StrCat(options.prefix, "-crl");
    revoked.type = kOpaque;
    ASSIGN_OR_RETURN(revoked.labels, ParseLabels(options.labels));
    ASSIGN_OR_RETURN(revoked.data[kCrlFile], ReadFileIn(directory, kCrlFile));
    secrets.push_back(std::move(revoked));
  }
  if (secrets.empty()) {
    return absl::NotFoundError(absl::StrCat(
        options.from, " holds no directory of `atoll ca issue`"));
  }
  return secrets;
}

// Called if the CA's Secret exists. Certificates of `from` are of use only if it
// holds the same CA: two callers that start at once make two, and one publishes
// its own first.
absl::Status CheckSameCa(const PublishOptions& options, const Secret& ca) {
  std::string found;
  if (const char* const file = RootFile(options.existing);
      HoldsFile(options.existing, file)) {
    ASSIGN_OR_RETURN(found, ReadFileIn(options.existing, file));
  }
  for (const char* const file : {kRootCertFile, kCaCertFile}) {
    const auto own = ca.data.find(file);
    if (own != ca.data.end() && own->second == found) return absl::OkStatus();
  }
  return WithHint(
      absl::AbortedError(absl::StrCat("secret ", ca.name,
                                      " exists and may hold another CA than ",
                                      options.from)),
      "Nothing was published. Mount the Secret, and start again with `atoll ca "
      "init --existing DIR` and --existing DIR.");
}

absl::Status Publish(Context& context, const PublishOptions& options) {
  RETURN_IF_ERROR(CheckIds(options));
  KubernetesApi api = options.api;
  if (api.url.empty()) api.url = context.kubernetes_api;
  if (api.url.empty()) {
    return UsageError("--api is missing, and this is no pod",
                      "In a pod KUBERNETES_SERVICE_HOST and "
                      "KUBERNETES_SERVICE_PORT name the API.");
  }
  ASSIGN_OR_RETURN(const std::vector<Secret> secrets, ReadSecrets(options));
  Table table({"SECRET", "STATE"});
  Json items = Json::array();
  for (const Secret& secret : secrets) {
    ASSIGN_OR_RETURN(const bool created,
                     CreateSecret(api, options.name_space, secret));
    if (!created && secret.type == kOpaque &&
        secret.data.count(kCrlFile) == 0) {
      RETURN_IF_ERROR(CheckSameCa(options, secret));
    }
    const char* const state = created ? "created" : "already there";
    table.AddRow({secret.name, state});
    items.push_back({{"secret", secret.name}, {"created", created}});
  }
  context.output().PrintList("secrets", items, table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddCaPublish(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "publish", "Create Secrets of certificates from a Kubernetes pod");
  command.Footer(
      "Each subdirectory ID of --from becomes the Secret PREFIX-ID-tls, and "
      "ca\n"
      "becomes PREFIX-ca, without the root's key, and PREFIX-crl, if it has\n"
      "revoked certificates. A Secret that exists is left as it is. If the CA's\n"
      "Secret exists, --existing must hold the same CA.\n"
      "Example:\n"
      "  atoll ca publish --from certs --namespace train --prefix atoll");
  auto options = std::make_shared<PublishOptions>();
  command
      .Add("--from", options->from, "Directory with one directory for each id")
      .Required();
  command.Add("--namespace", options->name_space, "Namespace of the Secrets")
      .Required();
  command.Add("--prefix", options->prefix, "Beginning of the Secrets' names")
      .Required();
  command.Add("--existing", options->existing,
              "Directory where the CA's Secret is mounted, if there "
              "is one");
  command.Add("--label", options->labels,
              "Label of every Secret, KEY=VALUE; may be repeated");
  command.Add("--api", options->api.url,
              "URL of the Kubernetes API; default: the pod's");
  options->api.token_file = absl::StrCat(kAccount, "token");
  command
      .Add("--token-file", options->api.token_file,
           "File with the service account's token")
      .ShowDefault();
  options->api.ca_file = absl::StrCat(kAccount, "ca.crt");
  command
      .Add("--api-ca", options->api.ca_file,
           "File with the CA of the Kubernetes API")
      .ShowDefault();
  SetAction(command, context, Publish, options);
}

}  // namespace atl::cli
