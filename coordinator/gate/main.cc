// atoll-gate: enrols strangers.
//
// The only program of Atoll that needs to be reached by whoever has a join
// string. It keeps nothing: the coordinator decides, the gate signs. So any
// number of gates may serve, and a gate may be replaced at any time.
//
// SIGTERM, SIGINT and SIGHUP (base/obs/signals.h) close its port, let open
// requests end, for 3 s at most, and end it with 0.

#include <cstdio>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/failpoint/failpoint.h"
#include "base/flags/flags.h"
#include "base/flags/program_flags.h"
#include "base/host_port/host_port.h"
#include "base/host_port/network.h"
#include "base/io/own_file.h"
#include "base/metrics/common_metrics.h"
#include "base/metrics/metrics.h"
#include "base/metrics/metrics_listener.h"
#include "base/net/port_watch.h"
#include "base/obs/log.h"
#include "base/obs/program.h"
#include "base/obs/signals.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/channel.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "coordinator/client/client.h"
#include "coordinator/gate/announcer.h"
#include "coordinator/gate/gate.h"
#include "coordinator/gate/gate_files.h"
#include "coordinator/gate/gate_listener.h"

namespace atl::coordinator {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:7402";
  std::string coordinator;
  std::string ca_dir;
  std::string advertise;
  std::string island_coordinator;
  std::string query_coordinator;
  double certificate_s = 86400;
  rpc::Security security;
  std::vector<Network> trusted_proxies;
  std::string port_file;
  std::string log_level = "info";
  std::string failpoint;
  MetricsListenerOptions metrics;
};

constexpr absl::Duration kStopMax = absl::Seconds(5);
constexpr absl::Duration kStopGrace = absl::Seconds(3);
// Less than a connection's time, so that there is time for an answer.
constexpr absl::Duration kCallMax = absl::Seconds(3);
constexpr double kCertificateSecondsMin = 5;
constexpr double kCertificateSecondsMax = 86400;

absl::Status CheckFlags(const Flags& flags) {
  if (!(flags.certificate_s >= kCertificateSecondsMin &&
        flags.certificate_s <= kCertificateSecondsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--certificate-s must be in [", kCertificateSecondsMin,
                     ", ", kCertificateSecondsMax, "]"));
  }
  for (const auto& [flag, address] :
       {std::pair("--coordinator", flags.coordinator),
        std::pair("--island-coordinator", flags.island_coordinator),
        std::pair("--query-coordinator", flags.query_coordinator),
        std::pair("--advertise", flags.advertise)}) {
    if (address.empty()) continue;
    RETURN_IF_ERROR(Annotate(ParseHostPort(address).status(), flag));
  }
  return absl::OkStatus();
}

// The address at which strangers reach a gate that listens on `listening`.
absl::StatusOr<std::string> ChooseAdvertised(const Flags& flags,
                                             const HostPort& listening) {
  if (!flags.advertise.empty()) return flags.advertise;
  if (listening.host == "0.0.0.0" || listening.host == "::") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", flags.listen,
        " stands for every address of this machine, and a join string needs "
        "one that strangers reach: give --advertise HOST:PORT"));
  }
  return JoinHostPort(listening.host, listening.port);
}

void FillDefaults(Flags& flags) {
  const auto fill = [&](std::string& path, const char* name) {
    if (path.empty()) path = absl::StrCat(flags.ca_dir, "/", name);
  };
  fill(flags.security.tls.cert, "tls.crt");
  fill(flags.security.tls.key, "tls.key");
  fill(flags.security.tls.ca, "ca.crt");
  for (std::string* const told :
       {&flags.island_coordinator, &flags.query_coordinator}) {
    if (told->empty()) *told = flags.coordinator;
  }
}

ClientOptions MakeClientOptions(const Flags& flags, std::stop_token stop) {
  ClientOptions options;
  options.address = flags.coordinator;
  options.channel =
      rpc::MakeChannelOptions(rpc::ChannelKind::kControl, flags.security);
  if (flags.security.insecure) options.channel.tls = {};
  options.timeout = kCallMax;
  options.waits_for_connection = true;
  options.stop = std::move(stop);
  return options;
}

absl::Status Serve(Flags flags, StopSignals& signals) {
  RETURN_IF_ERROR(SetMinimumLogSeverity(flags.log_level));
  RETURN_IF_ERROR(failpoint::Arm(flags.failpoint));
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(flags.listen));
  RETURN_IF_ERROR(ChooseAdvertised(flags, listen).status());
  FillDefaults(flags);
  RaiseOpenFileLimit();
  const std::string forbidden = FindForbiddenKeys(flags.ca_dir);
  if (!forbidden.empty()) {
    LOG(WARNING) << flags.ca_dir << " holds " << forbidden
                 << ", which no gate needs: delete it from this machine, since "
                    "whoever breaks into the gate would be your CA";
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<GateFiles> files,
                   GateFiles::Open(flags.security.tls, flags.ca_dir));

  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsListener> metrics_listener,
                   MetricsListener::Start(flags.metrics, metrics));
  const auto certificate = MakeCertificateMetrics(flags.security.tls.cert);
  metrics.Add(certificate);

  std::stop_source stop;
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   MakeClient(MakeClientOptions(flags, stop.get_token())));
  using Stub = v1::EnrolmentService::Stub;
  const auto ask = [&client](auto method) {
    return [&client, method](const auto& request) {
      return client->Call(method, request);
    };
  };
  Gate gate({.consume_token = ask(&Stub::ConsumeToken),
             .check_token = ask(&Stub::CheckToken),
             .renew_certificate = ask(&Stub::RenewCertificate),
             .files = files.get(),
             .metrics = &metrics,
             .clock = &SystemClock(),
             .island_coordinator = flags.island_coordinator,
             .query_coordinator = flags.query_coordinator,
             .lifetime = absl::Seconds(flags.certificate_s)});
  ASSIGN_OR_RETURN(const std::unique_ptr<GateListener> listener,
                   GateListener::Start({.address = listen,
                                        .gate = &gate,
                                        .files = files.get(),
                                        .metrics = &metrics,
                                        .trusted_proxies =
                                            flags.trusted_proxies}));
  const HostPort& address = listener->address();
  ASSIGN_OR_RETURN(const std::string advertised,
                   ChooseAdvertised(flags, {listen.host, address.port}));
  const Announcer announcer(
      {[&client](const v1::AnnounceGateRequest& request) {
         return client->Call(&Stub::AnnounceGate, request).status();
       },
       files.get(), advertised});
  RETURN_IF_ERROR(WritePortFile(flags.port_file, absl::StrCat(address.port)));
  std::printf("atoll-gate serves on %s\n",
              JoinHostPort(listen.host, address.port).c_str());
  std::fflush(stdout);
  metrics.SetReady(absl::OkStatus());
  auto watch = std::make_unique<net::PortWatch>(net::PortWatch::Spec{
      .addresses = {address},
      .has_tls = true,
      .on_change = [&metrics](const absl::Status& fault) {
        metrics.SetFault(fault);
      }});

  signals.Started();
  while (!signals.WaitFor(absl::Hours(1))) {
  }
  watch.reset();
  metrics.SetReady(absl::UnavailableError("stopping"));
  listener->Drain(kStopGrace);
  stop.request_stop();  // Ends the calls that are left.
  return absl::OkStatus();
}

}  // namespace
}  // namespace atl::coordinator

int main(int argc, char** argv) {
  atl::PrepareProcess();
  atl::StopSignals signals(atl::coordinator::kStopMax);
  atl::coordinator::Flags flags;
  atl::flags::Command app(
      "atoll-gate",
      "Enrols strangers: trades the token of a join string for a certificate.");
  app.Add("--listen", flags.listen,
          "HOST:PORT to serve on; port 0 takes a free one")
      .ShowDefault();
  app.Add("--advertise", flags.advertise,
          "HOST:PORT where strangers reach it, for join strings; "
          "default: as --listen");
  app.Add("--coordinator", flags.coordinator, "HOST:PORT of the coordinator")
      .Required();
  app.Add("--island-coordinator", flags.island_coordinator,
          "HOST:PORT of the coordinator for islands; default: as "
          "--coordinator");
  app.Add("--query-coordinator", flags.query_coordinator,
          "HOST:PORT of the coordinator for readers: a port that serves "
          "queries; default: as --coordinator");
  app.Add("--ca-dir", flags.ca_dir,
          "Directory with tls.crt, tls.key, ca.crt, island-ca.crt and "
          "island-ca.key, as `atoll ca issue --role gate` writes them")
      .Required();
  app.Add("--certificate-s", flags.certificate_s,
          "Seconds that an island's certificate is valid; it renews "
          "itself in time")
      .ShowDefault();
  app.Add("--port-file", flags.port_file,
          "File that the port of --listen is written to once serving");
  app.Add("--failpoint", flags.failpoint,
          "For tests: die at the named point, NAME or NAME@N");
  app.Add("--log-level", flags.log_level, "info, warning or error")
      .ShowDefault();
  app.Add("--tls-cert", flags.security.tls.cert,
          "Our certificate with its chain up to the root (PEM); "
          "default: tls.crt of --ca-dir");
  app.Add("--tls-key", flags.security.tls.key,
          "The private key of --tls-cert (PEM); default: tls.key");
  app.Add("--tls-ca", flags.security.tls.ca,
          "CA of the coordinator's certificate (PEM); default: ca.crt");
  app.AddFlag("--insecure", flags.security.insecure,
              "Dial the coordinator in plaintext, on a network for tests; "
              "strangers still use TLS");
  atl::flags::AddProxyFlag(app, flags.security.proxy);
  atl::flags::AddTrustedProxyFlag(app, flags.trusted_proxies);
  atl::flags::AddMetricsFlags(app, flags.metrics);
  app.Footer(
      "Example:\n"
      "  atoll ca issue --dir ca --role gate --id g --host gate.example.org "
      "--out g\n"
      "  atoll-gate --listen 0.0.0.0:7402 --advertise gate.example.org:7402 "
      "\\\n"
      "    --coordinator c.example.org:7400 --ca-dir g");
  app.AddVersion();
  if (const std::optional<int> end = app.ParseOrEnd(argc, argv)) {
    return *end;
  }
  return atl::EndProgram(app.name(), atl::coordinator::Serve(flags, signals));
}
