// atoll-coordinator: the control plane of Atoll.
//
// Serves RunService, TrainingStateService, IslandService and ServerService,
// keeps its state in --data-dir, and dials no program of ours. After any stop
// it continues from the same directory. With credentials for S3 in its
// environment (AWS_*) it signs URLs of runs' data for islands.
//
// `atoll-coordinator init` makes the state of a new cluster, once. A start on a
// directory without it ends with 9. `atoll-coordinator secret` prints the log's
// secret, and `atoll-coordinator restore` makes a log that takes the place of a
// lost one.
//
// SIGTERM, SIGINT and SIGHUP (base/obs/signals.h) drain it: it says that it is
// not ready, refuses further calls, decides and syncs those that it has
// accepted, ends all streams with UNAVAILABLE, and exits with 0. A second signal
// ends it at once, by that signal; a signal while it starts ends it at once,
// with 0.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/flags/flags.h"
#include "base/flags/program_flags.h"
#include "base/host_port/host_port.h"
#include "base/host_port/proxy.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/metrics/common_metrics.h"
#include "base/metrics/metrics.h"
#include "base/metrics/metrics_listener.h"
#include "base/mirror/open_mirror.h"
#include "base/net/port_watch.h"
#include "base/obs/log.h"
#include "base/obs/program.h"
#include "base/status/annotate.h"
#include "base/obs/signals.h"
#include "base/status/exit_code.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "coordinator/metrics/run_metrics.h"
#include "coordinator/service/data_url_signer.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/init_log.h"
#include "coordinator/service/listeners.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/service/mirror_thread.h"
#include "coordinator/service/restore_log.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

struct Flags {
  Listeners::Spec listeners = {.main = "127.0.0.1:7400"};
  MetricsListenerOptions metrics;
  std::string data_dir;
  std::string port_file;
  std::string failpoint;
  std::string log_level = "info";
  double server_lease_s = 10;
  double connection_age_s = 600;
  std::string mirror;
  Proxy proxy;
  SnapshotPolicy snapshots;
};

// A store that does not answer may hold the program up for as long as this.
// Less than Kubernetes waits before it kills.
constexpr absl::Duration kStopMax = absl::Seconds(20);

// "127.0.0.1:4711" gives "4711".
std::string PortOf(const std::string& address) {
  return address.substr(address.rfind(':') + 1);
}

// The value of an environment variable.
std::optional<std::string> GetVariable(absl::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt
                          : std::make_optional<std::string>(value);
}

absl::Status Serve(const Flags& flags, StopSignals& signals) {
  RETURN_IF_ERROR(SetMinimumLogSeverity(flags.log_level));
  RETURN_IF_ERROR(failpoint::Arm(flags.failpoint));
  if (!(flags.server_lease_s >= 0.1 && flags.server_lease_s <= 3600)) {
    return absl::InvalidArgumentError(
        "--server-lease-s must be in [0.1, 3600]");
  }
  if (flags.snapshots.log_records_max < 1 ||
      flags.snapshots.log_bytes_max < 1) {
    return absl::InvalidArgumentError(
        "--log-records-max and --log-bytes-max must be at least 1");
  }
  Listeners::Spec listeners_spec = flags.listeners;
  listeners_spec.connection_age_max = absl::Seconds(flags.connection_age_s);
  RETURN_IF_ERROR(Listeners::Check(listeners_spec));
  RaiseOpenFileLimit();

  // Before the recovery, so that probes are answered during it.
  Metrics metrics;
  Health health(metrics);
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsListener> metrics_listener,
                   MetricsListener::Start(flags.metrics, metrics));
  const auto disk = MakeDiskMetrics(flags.data_dir);
  metrics.Add(disk);
  const auto certificate =
      MakeCertificateMetrics(flags.listeners.security.tls.cert);
  metrics.Add(certificate);
  const auto runs = std::make_shared<RunMetrics>();
  metrics.Add(runs);
  listeners_spec.metrics = &metrics;

  // A missing one is made by `init` alone.
  if (PosixFileSystem().Exists(flags.data_dir)) {
    RETURN_IF_ERROR(
        Annotate(PrepareDataDirectory(flags.data_dir), "--data-dir"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::Open(flags.data_dir));
  EventLoop::Spec loop_spec;
  loop_spec.store = store.get();
  loop_spec.on_refusal = [&health](const absl::Status& refusal) {
    health.SetRefusal(refusal);
  };
  loop_spec.metrics = runs.get();
  loop_spec.fsync_seconds = &MakeFsyncHistogram(metrics);
  loop_spec.clock = &SystemClock();
  loop_spec.coordinator.server_lease_duration =
      absl::Seconds(flags.server_lease_s);
  loop_spec.coordinator.snapshots = flags.snapshots;
  std::optional<MirrorThread> mirror;
  if (!flags.mirror.empty()) {
    mirror.emplace(MirrorThread::Options{
        .open = mirror::MakeMirrorOpener(flags.mirror, GetVariable, flags.proxy)});
    loop_spec.coordinator.has_mirror = true;
    loop_spec.on_mirror_due = [&mirror] { mirror->Notify(); };
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop,
                   EventLoop::Start(loop_spec));
  // Before the loop, which it asks.
  const absl::Cleanup stop_mirror = [&mirror] {
    if (mirror.has_value()) mirror->Stop();
  };
  if (mirror.has_value()) mirror->Start(*loop);

  const std::unique_ptr<DataUrlSigner> signer =
      MakeDataUrlSigner([](absl::string_view name) {
        // Keys in somebody's home are not meant for the islands of a run.
        if (!absl::StartsWith(name, "AWS_")) {
          return std::optional<std::string>();
        }
        return GetVariable(name);
      });
  listeners_spec.data_url_signer = signer.get();
  listeners_spec.data_dir = flags.data_dir;
  ASSIGN_OR_RETURN(const std::unique_ptr<Listeners> listeners,
                   Listeners::Start(*loop, listeners_spec));
  const absl::Cleanup forget = [&health] { health.SetListeners(nullptr); };
  health.SetListeners(listeners.get());
  const std::string& address = listeners->ports().front().address;
  RETURN_IF_ERROR(WritePortFile(flags.port_file, PortOf(address)));
  std::printf("atoll-coordinator serves on %s\n", address.c_str());
  for (const Listeners::Port& port : listeners->ports()) {
    if (port.name == "main") continue;
    std::printf("its %s port is %s\n", port.name.c_str(), port.address.c_str());
  }
  std::fflush(stdout);
  net::PortWatch::Spec watch_spec;
  for (const Listeners::Port& port : listeners->ports()) {
    ASSIGN_OR_RETURN(watch_spec.addresses.emplace_back(),
                     ParseHostPort(port.address));
  }
  watch_spec.has_tls = !listeners_spec.security.tls.empty();
  watch_spec.on_change = [&metrics](const absl::Status& fault) {
    metrics.SetFault(fault);
  };
  auto watch = std::make_unique<net::PortWatch>(std::move(watch_spec));

  signals.Started();
  while (!signals.WaitFor(absl::Hours(1))) {
  }
  watch.reset();
  health.SetStopping();
  loop->Stop();
  signer->Stop();
  listeners->Stop();
  // Last: a mounted directory that hangs must not hold back the others.
  if (mirror.has_value()) mirror->Stop();
  return absl::OkStatus();
}

absl::Status Init(const InitSpec& spec) {
  RETURN_IF_ERROR(SetMinimumLogSeverity("error"));
  ASSIGN_OR_RETURN(const InitResult result, InitLog(spec, SystemClock()));
  if (!result.cluster_id.empty()) {
    std::printf("%s\n", result.cluster_id.c_str());
  }
  const absl::Status told = FlushOutput();
  const char* const directory = spec.data_dir.c_str();
  if (result.made) {
    std::fprintf(stderr, "made the log of a new cluster in %s\n", directory);
    if (!spec.if_empty) {  // A person typed it.
      std::fprintf(stderr, "Start it:\n  atoll-coordinator --data-dir %s\n",
                   directory);
    }
  } else if (result.cluster_id.empty()) {
    std::fprintf(stderr,
                 "WARN %s has a log, which stays;\n"
                 "its cluster id cannot be read\n",
                 directory);
  } else if (!spec.cluster_id.empty() && spec.cluster_id != result.cluster_id) {
    std::fprintf(stderr,
                 "WARN %s has a log, which stays:\n"
                 "it is of cluster %s,\nnot of --cluster-id %s\n",
                 directory, result.cluster_id.c_str(), spec.cluster_id.c_str());
  }
  return told;
}

absl::Status ExportSecret(const std::string& data_dir,
                          const std::string& output) {
  RETURN_IF_ERROR(SetMinimumLogSeverity("error"));
  ASSIGN_OR_RETURN(const std::string secret, ReadLogSecret(data_dir));
  if (output.empty()) {
    std::printf("%s\n", secret.c_str());
    RETURN_IF_ERROR(FlushOutput());
  } else {
    RETURN_IF_ERROR(Annotate(WriteSecretFile(output, secret), "--output"));
  }
  return Annotate(MarkSecretExported(data_dir),
                  "the secret was given, but `atoll doctor --operator` still "
                  "warns");
}

absl::Status Restore(RestoreSpec spec, const Flags& flags) {
  RETURN_IF_ERROR(SetMinimumLogSeverity("error"));
  RETURN_IF_ERROR(failpoint::Arm(flags.failpoint));
  const bool is_mirror = absl::StrContains(spec.from, "://");
  if (is_mirror) {
    const std::string wrong = mirror::CheckMirrorUrl(spec.from);
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--from ", wrong));
    }
    spec.open_mirror =
        mirror::MakeMirrorOpener(spec.from, GetVariable, flags.proxy);
  }
  ASSIGN_OR_RETURN(const RestoreResult result, RestoreLog(spec, SystemClock()));
  for (const std::string& warning : result.warnings) {
    std::fprintf(stderr, "WARN %s\n", warning.c_str());
  }
  std::printf("cluster %s\n", result.cluster_id.c_str());
  for (const RestoredRun& run : result.runs) {
    if (run.pin_id.empty()) {
      std::printf("run %s: not restored: %s\n", run.run_id.c_str(),
                  run.why_not.c_str());
      continue;
    }
    std::printf("run %s: continues from commit %lld (%s of %s)\n",
                run.run_id.c_str(), static_cast<long long>(run.commit),
                run.pin_id.c_str(),
                absl::FormatTime(absl::RFC3339_sec, run.checkpoint_time,
                                 absl::UTCTimeZone())
                    .c_str());
  }
  const absl::Status told = FlushOutput();
  std::fprintf(stderr,
               "made a log in place of the lost one. Start it as before:\n"
               "  atoll-coordinator --data-dir %s%s%s\n",
               spec.data_dir.c_str(), is_mirror ? " --mirror " : "",
               is_mirror ? spec.from.c_str() : "");
  return told;
}

}  // namespace
}  // namespace atl::coordinator

int main(int argc, char** argv) {
  atl::PrepareProcess();
  atl::StopSignals signals(atl::coordinator::kStopMax);
  atl::coordinator::Flags flags;
  atl::flags::Command app("atoll-coordinator",
                          "The control plane of Atoll: runs, islands, rounds.");
  app.Add("--listen", flags.listeners.main,
          "HOST:PORT to serve on; port 0 takes a free one")
      .ShowDefault();
  app.Add("--island-listen", flags.listeners.island,
          "HOST:PORT for islands alone; default: as --listen");
  app.Add("--server-listen", flags.listeners.server,
          "HOST:PORT for parameter servers alone; default: as --listen");
  app.Add("--query-listen", flags.listeners.query,
          "HOST:PORT for queries alone; default: as --listen");
  app.Add("--data-dir", flags.data_dir,
          "Directory of the coordinator's state, which `init` has made");
  app.Add("--port-file", flags.port_file,
          "File that the port of --listen is written to once serving");
  app.Add("--failpoint", flags.failpoint,
          "For tests: die at the named point, NAME or NAME@N");
  app.Add("--log-level", flags.log_level, "info, warning or error")
      .ShowDefault();
  app.Add("--server-lease-s", flags.server_lease_s,
          "Seconds after which a silent server is away")
      .ShowDefault();
  app.Add("--connection-age-s", flags.connection_age_s,
          "Seconds after which callers must reconnect; open calls are "
          "cut after as many seconds again, at most a minute")
      .ShowDefault();
  app.Add("--log-records-max", flags.snapshots.log_records_max,
          "Records after which a snapshot replaces a run's log, once "
          "they have at least the snapshot's bytes")
      .ShowDefault();
  app.Add("--log-bytes-max", flags.snapshots.log_bytes_max,
          "The same limit in bytes")
      .ShowDefault();
  app.Add("--mirror", flags.mirror, atl::mirror::kMirrorFlagHelp)
      .Check({"", [](const std::string& url) {
                return atl::mirror::CheckMirrorUrl(url);
              }});
  atl::flags::AddProxyFlag(app, flags.proxy);
  atl::flags::AddSecurityFlags(app, flags.listeners.security);
  atl::flags::AddIslandCaFlag(app, flags.listeners.security);
  atl::flags::AddMetricsFlags(app, flags.metrics);
  atl::coordinator::InitSpec init;
  atl::flags::Command& init_command = app.AddCommand(
      "init", "Make the log of a new cluster, once, and print its cluster id");
  init_command
      .Add("--data-dir", init.data_dir,
           "Directory for the coordinator's state; created if missing")
      .Required();
  init_command.Add("--cluster-id", init.cluster_id,
                   "Id of the cluster, 32 lower-case hex digits; "
                   "default: a random one");
  init_command.AddFlag("--if-empty", init.if_empty,
                       "Succeed and change nothing if there is a log, also "
                       "of another cluster");
  init_command.Add("--secret-file", init.secret_file,
                   "New file for the log's secret, mode 0600: keep it where "
                   "the CA is");
  init_command.Footer(
      "It ends with 9 if the directory has a log, or holds other files.\n"
      "Example, and then the start:\n"
      "  atoll-coordinator init --data-dir /var/lib/atoll/c\n"
      "  atoll-coordinator --data-dir /var/lib/atoll/c");
  std::string secret_dir;
  std::string secret_output;
  atl::flags::Command& secret_command = app.AddCommand(
      "secret", "Print the secret of a log, for a restore if it is lost");
  secret_command
      .Add("--data-dir", secret_dir, "Directory of the coordinator's state")
      .Required();
  secret_command.Add("--output", secret_output,
                     "New file for the secret, mode 0600, instead");
  secret_command.Footer(
      "Keep it where the CA is, not on the coordinator's disk. Whoever has it\n"
      "and the coordinator's certificate can take the cluster's place. The\n"
      "command works while the coordinator runs.\n"
      "Example:\n"
      "  atoll-coordinator secret --data-dir /var/lib/atoll/c \\\n"
      "    --output ca/log.secret");
  atl::coordinator::RestoreSpec restore;
  atl::flags::Command& restore_command = app.AddCommand(
      "restore", "Make a log that takes the place of a lost one");
  restore_command
      .Add("--data-dir", restore.data_dir,
           "Directory for the coordinator's state: new or empty")
      .Required();
  restore_command
      .Add("--from", restore.from,
           "URL of the cluster's mirror, or an older copy of the lost "
           "--data-dir")
      .Required();
  restore_command.Add("--cluster-id", restore.cluster_id,
                      "Id of the cluster, if the mirror has several");
  restore_command.Add("--secret-file", restore.secret_file,
                      "From a mirror: file with the lost log's secret, as "
                      "`init --secret-file` or `secret` has written it");
  restore_command.AddFlag(
      "--without-secret", restore.without_secret,
      "From a mirror: make a new secret. With certificates, servers and "
      "islands still know the coordinator by its own; without, nothing proves "
      "to them that it is theirs");
  atl::flags::AddProxyFlag(restore_command, flags.proxy);
  restore_command.Footer(
      "Runs go back to their newest whole checkpoint; what was committed since "
      "is lost.\n"
      "A copy knows nothing later than itself: prefer the mirror, whose newer\n"
      "checkpoints a restore from a copy gives up.\n"
      "Servers and islands that live continue by themselves. Example, and then "
      "the start:\n"
      "  atoll-coordinator restore --data-dir /var/lib/atoll/c \\\n"
      "    --from s3://models/atoll --secret-file c.secret\n"
      "  atoll-coordinator --data-dir /var/lib/atoll/c --mirror "
      "s3://models/atoll");
  app.Footer(
      "Example, and then the same for a network, with certificates (README):\n"
      "  atoll-coordinator init --data-dir /var/lib/atoll/c\n"
      "  atoll-coordinator --listen 127.0.0.1:7400 --data-dir "
      "/var/lib/atoll/c\n"
      "  atoll-coordinator --listen 0.0.0.0:7400 --data-dir /var/lib/atoll/c "
      "\\\n"
      "    --tls-dir c");
  app.AddVersion();
  if (const std::optional<int> end = app.ParseOrEnd(argc, argv)) {
    return *end;
  }
  if (secret_command.IsChosen()) {
    return atl::EndProgram(
        app.name(), atl::coordinator::ExportSecret(secret_dir, secret_output));
  }
  if (restore_command.IsChosen()) {
    return atl::EndProgram(app.name(),
                           atl::coordinator::Restore(restore, flags));
  }
  if (!init_command.IsChosen() && flags.data_dir.empty()) {
    std::fprintf(stderr,
                 "--data-dir is required\n"
                 "Run with --help for more information.\n");
    return static_cast<int>(atl::ExitCode::kUsage);
  }
  return atl::EndProgram(app.name(),
                         init_command.IsChosen()
                             ? atl::coordinator::Init(init)
                             : atl::coordinator::Serve(flags, signals));
}
