// atoll-server: a parameter server.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/flags/flags.h"
#include "base/flags/program_flags.h"
#include "base/host_port/host_port.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/io/timed_file_system.h"
#include "base/machine/limits.h"
#include "base/metrics/common_metrics.h"
#include "base/metrics/metrics.h"
#include "base/metrics/metrics_listener.h"
#include "base/mirror/open_mirror.h"
#include "base/net/port_watch.h"
#include "base/obs/log.h"
#include "base/obs/program.h"
#include "base/obs/signals.h"
#include "base/rpc/allocator.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "coordinator/client/client.h"
#include "coordinator/client/server_control_client.h"
#include "server/advertise.h"
#include "server/machine_health.h"
#include "server/parameter_server.h"

namespace atl::server {
namespace {

// Both fit in Kubernetes' 30 s between SIGTERM and SIGKILL.
constexpr absl::Duration kDrainMax = absl::Seconds(20);
constexpr absl::Duration kStopMax = absl::Seconds(25);

// Bytes a second of --checkpoint-bandwidth.
constexpr double kRateMin = 64 << 10;
constexpr double kRateMax = 1e12;

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string coordinator;
  std::string server_id;
  std::string data_dir;
  std::string port_file;
  std::string failpoint;
  std::string log_level = "info";
  int threads = 0;
  int64_t memory_mib = 0;
  int64_t live_merge_mib = 1024;
  double slow_stream_s = 20;
  double connection_age_s = 600;
  std::string mirror;
  int64_t checkpoint_bytes_per_second = 0;
  rpc::Security security;
  MetricsListenerOptions metrics;
};

// "20MB/s" or "100Mb/s"; empty: `text` is neither.
std::optional<int64_t> ParseRate(absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"kb/s", 125}, {"Mb/s", 125e3}, {"Gb/s", 125e6},
      {"kB/s", 1e3}, {"MB/s", 1e6},   {"GB/s", 1e9}};
  for (const auto& [unit, bytes] : kUnits) {
    absl::string_view number = text;
    double value = 0;
    if (absl::ConsumeSuffix(&number, unit) &&
        absl::SimpleAtod(number, &value) && value * bytes >= kRateMin &&
        value * bytes <= kRateMax) {
      return static_cast<int64_t>(value * bytes);
    }
  }
  return std::nullopt;
}

// The value of an environment variable.
std::optional<std::string> GetVariable(absl::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt
                          : std::make_optional<std::string>(value);
}

void AddFlags(flags::Command& app, Flags& flags) {
  app.Add("--listen", flags.listen,
          "HOST:PORT to serve on; port 0: any free port")
      .ShowDefault();
  app.Add("--coordinator", flags.coordinator, "HOST:PORT of the coordinator")
      .Required();
  app.Add("--server-id", flags.server_id,
          "Name of this server, kept over restarts: [a-z0-9-]{1,63}")
      .Required();
  // After --server-id, which its check needs.
  app.Add("--advertise", flags.advertise,
          "HOST:PORT at which islands reach it; default: --listen. "
          "{server-id}, {port}, {ordinal} (the number at the id's end) "
          "and {ordinal+N} are replaced")
      .Check({"", [&flags](const std::string& advertise) {
                return std::string(
                    ResolveAdvertise(advertise, flags.server_id, 1)
                        .status()
                        .message());
              }});
  app.Add("--data-dir", flags.data_dir,
          "Directory of its state; created if it is missing")
      .Required();
  app.Add("--port-file", flags.port_file,
          "File to which the port is written once it serves");
  app.Add("--threads", flags.threads,
          "Threads that merge; 0: one for each processor that the "
          "cgroup and the affinity leave")
      .ShowDefault()
      .Check(flags::Range(0, 256));
  app.Add("--memory-mib", flags.memory_mib,
          "Memory for parameters and optimizer state, in MiB; the rest "
          "is read from files, slowly; 0: half of the machine's memory, or "
          "of the cgroup's limit")
      .ShowDefault()
      .Check(flags::Range(int64_t{0}, int64_t{1} << 30));
  app.Add("--live-merge-mib", flags.live_merge_mib,
          "Memory for blocks that wait to be merged in runs of "
          "durability island, in MiB; when it is used up, islands are "
          "admitted one after the other")
      .ShowDefault()
      .Check(flags::Range(int64_t{0}, int64_t{1} << 30));
  app.Add("--slow-stream-s", flags.slow_stream_s,
          "The server ends a push or pull that moves less than 16 KiB "
          "in this many seconds while the server waits for it")
      .ShowDefault()
      .Check(flags::Range(0.1, 3600.0));
  app.Add("--connection-age-s", flags.connection_age_s,
          "Seconds after which a connection must be opened again; calls "
          "in progress are cut as long after that, at most a minute")
      .ShowDefault();
  app.Add("--mirror", flags.mirror, mirror::kMirrorFlagHelp)
      .Check({"", [](const std::string& url) {
                return mirror::CheckMirrorUrl(url);
              }});
  app.AddText("--checkpoint-bandwidth",
              {"", [&flags](const std::string& text) -> std::string {
                 const std::optional<int64_t> rate = ParseRate(text);
                 if (!rate.has_value()) {
                   return "must be a rate of at least 64 KiB/s, such as 20MB/s "
                          "or 100Mb/s";
                 }
                 flags.checkpoint_bytes_per_second = *rate;
                 return "";
               }},
              "The rate of copies to --mirror; default: no bound");
  app.Add("--log-level", flags.log_level, "info, warning or error")
      .ShowDefault();
  app.Add("--failpoint", flags.failpoint,
          "For tests: NAME[@N], the point where the process kills "
          "itself");
  flags::AddSecurityFlags(app, flags.security);
  flags::AddIslandCaFlag(app, flags.security);
  flags::AddProxyFlag(app, flags.security.proxy);
  flags::AddMetricsFlags(app, flags.metrics);
  app.Footer(
      "Examples, on one machine and on a network, with certificates "
      "(README):\n"
      "  atoll-server --coordinator 127.0.0.1:7400 --server-id s0 \\\n"
      "    --data-dir /var/lib/atoll/s0\n"
      "  atoll-server --listen 0.0.0.0:7401 --advertise s0.example.org:7401 "
      "\\\n"
      "    --coordinator c.example.org:7400 --server-id s0 \\\n"
      "    --data-dir /var/lib/atoll/s0 --tls-dir s0");
}

// A coordinator's state is in the directory itself, a server's in subfolders.
absl::Status CheckDirectory(const std::string& data_dir) {
  if (::access(absl::StrCat(data_dir, "/CURRENT").c_str(), F_OK) != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(data_dir,
                   " is a coordinator's data directory; give another "
                   "--data-dir"));
}

absl::Status Run(const Flags& flags, StopSignals& signals) {
  RETURN_IF_ERROR(SetMinimumLogSeverity(absl::string_view(flags.log_level)));
  RETURN_IF_ERROR(failpoint::Arm(flags.failpoint));
  RaiseOpenFileLimit();
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsListener> metrics_listener,
                   MetricsListener::Start(flags.metrics, metrics));
  const auto disk_metrics = MakeDiskMetrics(flags.data_dir);
  const auto certificate_metrics =
      MakeCertificateMetrics(flags.security.tls.cert);
  metrics.Add(disk_metrics);
  metrics.Add(certificate_metrics);
  prometheus::Histogram& fsyncs = MakeFsyncHistogram(metrics);
  MachineHealth health(flags.data_dir);
  TimedFileSystem fs(PosixFileSystem(), SystemClock(),
                     [&fsyncs, &health](absl::Duration duration) {
                       fsyncs.Observe(absl::ToDoubleSeconds(duration));
                       health.NoteSync(duration);
                     });
  RETURN_IF_ERROR(CheckDirectory(flags.data_dir));
  RETURN_IF_ERROR(Annotate(PrepareDataDirectory(flags.data_dir), "--data-dir"));

  const rpc::ChannelOptions channel =
      rpc::MakeChannelOptions(rpc::ChannelKind::kControl, flags.security);
  ASSIGN_OR_RETURN(
      std::unique_ptr<coordinator::ServerControlClient> control,
      coordinator::MakeServerControlClient(flags.coordinator, channel));
  coordinator::ClientOptions run_options;
  run_options.address = flags.coordinator;
  run_options.channel = channel;
  ASSIGN_OR_RETURN(std::unique_ptr<coordinator::Client> runs,
                   coordinator::MakeClient(run_options));

  ParameterServer::Options options;
  options.server_id = flags.server_id;
  options.data_dir = flags.data_dir;
  options.listener.address = flags.listen;
  options.listener.tls = flags.security.tls;
  options.listener.insecure = flags.security.insecure;
  options.listener.connection_age_max = absl::Seconds(flags.connection_age_s);
  options.advertise = flags.advertise;
  options.merge_thread_count =
      flags.threads > 0 ? flags.threads : ProcessorCount();
  options.live_merge_bytes_max = flags.live_merge_mib << 20;
  options.image_bytes_max =
      flags.memory_mib > 0 ? flags.memory_mib << 20 : MemoryLimitBytes() / 2;
  options.stream_limits.window = absl::Seconds(flags.slow_stream_s);
  if (!flags.mirror.empty()) {
    options.mirror = CheckpointMirrorOptions{
        .open = mirror::MakeMirrorOpener(flags.mirror, GetVariable,
                                         flags.security.proxy),
        .bytes_per_second = flags.checkpoint_bytes_per_second};
  }
  const auto get_run =
      [&runs](const std::string& run_id) -> absl::StatusOr<v1::Run> {
    ASSIGN_OR_RETURN(const v1::GetRunResponse response, runs->GetRun(run_id));
    return response.run();
  };
  ASSIGN_OR_RETURN(
      std::unique_ptr<ParameterServer> server,
      ParameterServer::Start(options,
                             {fs, *control, get_run, metrics,
                              [&health] { return health.Get(absl::Now()); }}));
  LOG(INFO) << "serving at " << server->address() << ", incarnation "
            << server->incarnation();
  RETURN_IF_ERROR(
      WritePortFile(flags.port_file, absl::StrCat(server->port())));
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(server->address()));
  auto watch = std::make_unique<net::PortWatch>(net::PortWatch::Spec{
      .addresses = {address},
      .has_tls = !flags.security.tls.empty(),
      .on_change = [&metrics](const absl::Status& fault) {
        metrics.SetFault(fault);
      }});
  signals.Started();
  while (!signals.IsStopping()) {
    const absl::Status ended = server->WaitForEnd(absl::Milliseconds(200));
    if (!ended.ok()) {
      server->Stop();
      return ended;
    }
  }
  watch.reset();
  return server->Drain(absl::Now() + kDrainMax);
}

}  // namespace
}  // namespace atl::server

int main(int argc, char** argv) {
  atl::PrepareProcess();
  atl::rpc::TuneAllocator();
  atl::StopSignals signals(atl::server::kStopMax);

  atl::flags::Command app(
      "atoll-server", "Atoll's parameter server: holds a shard of every run.");
  atl::server::Flags flags;
  atl::server::AddFlags(app, flags);
  app.AddVersion();
  if (const std::optional<int> end = app.ParseOrEnd(argc, argv)) {
    return *end;
  }
  return atl::EndProgram(app.name(), atl::server::Run(flags, signals));
}
