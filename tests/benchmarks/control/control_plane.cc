#include "tests/benchmarks/control/control_plane.h"

#include <sched.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/obs/log.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/status/status_macros.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace atl::benchmarks {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);

// This process, and the children that it starts from now on, run on `core`.
void UseCore(int core) {
  if (std::thread::hardware_concurrency() < 2) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {(std::istreambuf_iterator<char>(file)), {}};
}

void AddTls(const rpc::TlsFiles& tls, std::vector<std::string>& command) {
  if (tls.empty()) return;
  command.push_back(absl::StrCat("--tls-cert=", tls.cert));
  command.push_back(absl::StrCat("--tls-key=", tls.key));
  command.push_back(absl::StrCat("--tls-ca=", tls.ca));
}

class EchoService final : public v1::IslandService::CallbackService {
  grpc::ServerUnaryReactor* Heartbeat(
      grpc::CallbackServerContext* context,
      const v1::HeartbeatRequest* /*request*/,
      v1::HeartbeatResponse* response) override {
    response->mutable_lease_duration()->set_seconds(30);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1::WatchPlanResponse>* WatchPlan(
      grpc::CallbackServerContext* /*context*/,
      const v1::WatchPlanRequest* /*request*/) override {
    return new OpenStream();
  }

 private:
  // Deletes itself.
  class OpenStream final
      : public grpc::ServerWriteReactor<v1::WatchPlanResponse> {
   public:
    OpenStream() { StartWrite(&response_); }
    void OnWriteDone(bool /*ok*/) override {}
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    v1::WatchPlanResponse response_;
  };
};

// Serves until the parent closes this process's input.
void Serve(const std::string& address) {
  std::cout << address << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

}  // namespace

ControlPlane::~ControlPlane() {
  bare_.reset();
  probe_.reset();
  coordinator_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(options_.directory, ignored);
}

absl::Status ControlPlane::Start() {
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(options_.directory, ": ", error.message()));
  }
  if (options_.tls) {
    const absl::Time now = absl::Now();
    ASSIGN_OR_RETURN(authority_,
                     rpc::MakeAuthority("a benchmark", now - absl::Hours(1),
                                        now + absl::Hours(48)));
    RETURN_IF_ERROR(
        WriteFile(options_.directory + "/ca.crt", authority_.cert_pem));
  }
  {
    ASSIGN_OR_RETURN(
        const auto init,
        ChildProcess::Start({options_.coordinator_binary, "init",
                             absl::StrCat("--data-dir=", options_.directory,
                                          "/coordinator")},
                            options_.directory + "/init.log"));
    while (!init->Ended()) absl::SleepFor(absl::Milliseconds(10));
  }
  address_ = "127.0.0.1:0";
  RETURN_IF_ERROR(Restart());

  return StartRole("probe", probe_, probe_address_);
}

absl::Status ControlPlane::StartBare() {
  UseCore(0);
  const absl::Status started = StartRole("bare", bare_, bare_address_);
  UseCore(1);
  return started;
}

absl::Status ControlPlane::StartRole(const std::string& role,
                                     std::unique_ptr<ChildProcess>& process,
                                     std::string& address) {
  std::error_code ignored;
  std::vector<std::string> command = {
      std::filesystem::read_symlink("/proc/self/exe", ignored).string(),
      absl::StrCat("--role=", role)};
  ASSIGN_OR_RETURN(const rpc::TlsFiles tls,
                   Issue(absl::StrCat("coordinator:", role)));
  AddTls(tls, command);
  ASSIGN_OR_RETURN(process, ChildProcess::Start(command));
  ASSIGN_OR_RETURN(address, process->ReadLine(kPatience));
  return absl::OkStatus();
}

absl::Status ControlPlane::Restart() {
  const std::string port_file = options_.directory + "/coordinator.port";
  std::error_code ignored;
  std::filesystem::remove(port_file, ignored);
  std::vector<std::string> command = {
      options_.coordinator_binary,
      absl::StrCat("--listen=", address_),
      absl::StrCat("--data-dir=", options_.directory, "/coordinator"),
      absl::StrCat("--port-file=", port_file),
      "--log-level=warning"};
  ASSIGN_OR_RETURN(const rpc::TlsFiles tls, Issue("coordinator:coordinator"));
  AddTls(tls, command);
  const std::string log = options_.directory + "/coordinator.log";
  UseCore(0);
  absl::StatusOr<std::unique_ptr<ChildProcess>> started =
      ChildProcess::Start(command, log);
  UseCore(1);
  ASSIGN_OR_RETURN(coordinator_, std::move(started));
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline && !coordinator_->Ended()) {
    std::ifstream file(port_file);
    int port = 0;
    if (file >> port && port > 0) {
      address_ = absl::StrCat("127.0.0.1:", port);
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::UnavailableError(
      absl::StrCat("the coordinator does not serve: ", ReadFile(log)));
}

absl::StatusOr<rpc::TlsFiles> ControlPlane::Issue(const std::string& name) {
  rpc::TlsFiles& files = issued_[name];
  if (!options_.tls || !files.empty()) return files;
  const absl::Time now = absl::Now();
  rpc::CertificateSpec spec;
  spec.common_name = absl::StrCat("atoll:", name);
  spec.begin = now - absl::Minutes(5);
  spec.end = now + absl::Hours(48);
  if (absl::StartsWith(name, "coordinator:")) {
    spec.hosts = {"127.0.0.1"};
    spec.server_auth = true;
  } else {
    spec.client_auth = true;
  }
  ASSIGN_OR_RETURN(const rpc::KeyAndCertificate made,
                   rpc::IssueCertificate(authority_, spec));
  const std::string path = absl::StrCat(
      options_.directory, "/", absl::StrReplaceAll(name, {{":", "-"}}));
  RETURN_IF_ERROR(WriteFile(path + ".crt", made.cert_pem));
  RETURN_IF_ERROR(WriteFile(path + ".key", made.key_pem));
  files.cert = path + ".crt";
  files.key = path + ".key";
  files.ca = options_.directory + "/ca.crt";
  return files;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ControlPlane::DialAt(
    const std::string& address, const std::string& name) {
  rpc::ChannelOptions channel;
  ASSIGN_OR_RETURN(channel.tls, Issue(name));
  return rpc::MakeChannel(address, channel);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ControlPlane::Dial(
    const std::string& name) {
  return DialAt(address_, name);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ControlPlane::DialProbe() {
  return DialAt(probe_address_, "island:probe");
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ControlPlane::DialBare(
    const std::string& name) {
  return DialAt(bare_address_, name);
}

int64_t ControlPlane::LogBytes() const {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           options_.directory + "/coordinator", ignored)) {
    if (!entry.is_regular_file(ignored)) continue;
    const auto size = entry.file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

int RunProbe(const rpc::TlsFiles& tls) {
  SetMinimumLogSeverity("error").IgnoreError();
  EchoService service;
  rpc::RpcServer::Spec spec;
  spec.listener.tls = tls;
  spec.listener.connection_age_max = absl::Hours(24);
  spec.services = {&service};
  const auto server = rpc::RpcServer::Start(spec);
  if (!server.ok()) {
    std::cerr << "probe: " << server.status() << "\n";
    return 1;
  }
  (*server)->SetServing(true);
  Serve(absl::StrCat("127.0.0.1:", (*server)->port()));
  return 0;
}

int RunBare(const rpc::TlsFiles& tls) {
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::InsecureServerCredentials();
  if (!tls.empty()) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = ReadFile(tls.ca);
    options.pem_key_cert_pairs.push_back(
        {ReadFile(tls.key), ReadFile(tls.cert)});
    credentials = grpc::SslServerCredentials(options);
  }
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  Serve(absl::StrCat("127.0.0.1:", port));
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace atl::benchmarks
