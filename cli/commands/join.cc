#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/flags/program_flags.h"
#include "base/io/files.h"
#include "base/io/private_directory.h"
#include "base/layout/ids.h"
#include "base/metrics/common_metrics.h"
#include "base/metrics/metrics.h"
#include "base/metrics/metrics_listener.h"
#include "base/obs/log.h"
#include "base/obs/version.h"
#include "base/rpc/authorization.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/channel.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/island_reporter.h"
#include "cli/commands/join_enrolment.h"
#include "cli/commands/join_sandbox.h"
#include "cli/commands/join_service.h"
#include "cli/commands/recipes.h"
#include "cli/doctor/check_before_join.h"
#include "cli/doctor/machine_facts.h"
#include "cli/enrol/call_gate.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/flags/compute_flags.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/flags/lent_flags.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/units/units.h"
#include "cli/volunteer/data_consent.h"
#include "cli/volunteer/island_sandbox.h"
#include "cli/volunteer/local_socket.h"
#include "cli/volunteer/machine_use.h"
#include "cli/volunteer/transfer_account.h"
#include "cli/volunteer/volunteer.h"
#include "cli/volunteer/volunteer_flags.h"
#include "worker/api/run_island.h"

namespace atl::cli {
namespace {

struct JoinOptions {
  std::string address;
  std::string run_id;
  std::string island_id;
  std::string data_path;
  std::vector<std::string> data_roots;
  std::string work_directory;
  std::string trainer;
  int threads = 0;
  CapFlags caps;
  DataCacheFlags data_cache;
  int streams = server::kDefaultStreamCount;
  worker::IslandPlace place;
  std::string rendezvous_secret;
  std::string wait_for_run = "0s";
  bool idle_after_run = false;
  MetricsListenerOptions metrics;
  VolunteerFlags volunteer;
  bool service = false;
  bool require_sandbox = false;
  std::string failpoint;
  const flags::Command* command = nullptr;  // For the flags as given.
};

// Checks the mesh's flags before any network call.
absl::Status CheckPlace(const JoinOptions& options) {
  const absl::Status fits = worker::MakeMesh(options.place).status();
  if (!fits.ok()) {
    const bool no_mesh =
        options.place.process_count > 1 && options.place.mesh.empty();
    return UsageError(no_mesh ? "--processes needs --mesh: the ranks that the "
                                "processes share"
                              : fits.message(),
                      "`atoll join --help` shows an example with two "
                      "processes.");
  }
  if (options.place.process_count > 1 && options.island_id.empty()) {
    return UsageError("an island of several processes needs --island-id",
                      "Give every process the same --island-id: the default, "
                      "the host's name, differs between hosts.");
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> ReadWait(const JoinOptions& options) {
  const absl::StatusOr<double> seconds = ParseSeconds(options.wait_for_run);
  if (!seconds.ok()) return WithContext(seconds.status(), "--wait-for-run");
  if (*seconds > 0 && options.run_id.empty()) {
    return UsageError("--wait-for-run needs --run",
                      "Name the run that will be created.");
  }
  return absl::Seconds(*seconds);
}

std::string HostId() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "island";
  std::string id;
  for (const char* c = name; *c != 0 && id.size() < 63; ++c) {
    const unsigned char byte = static_cast<unsigned char>(*c);
    id += std::isalnum(byte) ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return id.empty() ? "island" : id;
}

// The island id without --island-id: the certificate's, else the host's name.
std::string DefaultIslandId(const rpc::Security& security) {
  if (security.tls.empty()) return HostId();
  const absl::StatusOr<rpc::TlsMaterial> material =
      rpc::ReadTlsFiles(security.tls);
  // The client reports a fault of the files when it uses them.
  if (!material.ok()) return HostId();
  const absl::StatusOr<std::string> name =
      rpc::ReadCommonName(material->cert_pem);
  if (!name.ok()) return HostId();
  const absl::StatusOr<rpc::Caller> caller = rpc::ParseCommonName(*name);
  return caller.ok() && caller->role == Role::kIsland ? caller->id
                                                           : HostId();
}

// The run to join without --run: the only one that has not ended.
absl::StatusOr<std::string> OnlyRun(const Context& context,
                                    const std::string& address,
                                    std::stop_token stop) {
  ASSIGN_OR_RETURN(auto client,
                   context.MakeClient({.stop = stop, .address = address}));
  const absl::StatusOr<std::vector<v1::Run>> runs = client->ListRuns();
  if (absl::IsPermissionDenied(runs.status())) {
    return WithHint(runs.status(),
                    "An island may not list runs. Give --run; the run's "
                    "operator knows its id.");
  }
  RETURN_IF_ERROR(runs.status());
  std::string found;
  for (const v1::Run& run : *runs) {
    if (HasEnded(run.state())) continue;
    if (!found.empty()) {
      return UsageError("there are several active runs",
                        absl::StrCat("Choose one with --run; `atoll run list "
                                     "--coordinator ",
                                     address, "` lists them."));
    }
    found = run.run_id();
  }
  if (found.empty()) {
    return WithReason(absl::NotFoundError(
                          absl::StrCat("there is no active run at ", address)),
                      "NO_RUN");
  }
  return found;
}

std::string DataCacheOf(const Context& context, const JoinOptions& options) {
  return options.data_cache.directory.empty()
             ? DefaultDataCache(context.state_directory)
             : options.data_cache.directory;
}

RunLimits ReadRunLimits(const Context& context, const JoinOptions& options,
                        const Lent& lent,
                        const std::optional<Enrolment>& enrolment) {
  return LimitsOf(ReadMachineFacts(options.work_directory.empty()
                                       ? context.state_directory
                                       : options.work_directory,
                                   DataCacheOf(context, options)),
                  lent, enrolment.has_value());
}

worker::RunIslandOptions IslandOptions(const Context& context,
                                       const JoinOptions& options,
                                       const rpc::Security& security) {
  worker::RunIslandOptions island;
  island.coordinator_address = options.address;
  island.run_id = options.run_id;
  island.island_id = options.island_id;
  island.data_path = options.data_path;
  island.data_roots = options.data_roots;
  island.data_cache_directory = DataCacheOf(context, options);
  island.work_directory = options.work_directory;
  island.trainer_path = options.trainer.substr(options.trainer.find(':') + 1);
  island.thread_count = ChooseThreadCount(options.threads);
  island.stream_count = options.streams;
  island.place = options.place;
  island.rendezvous_secret_path = options.rendezvous_secret;
  island.machine_secret_path =
      absl::StrCat(context.state_directory, "/rendezvous.secret");
  island.security = security;
  island.program_version = kProgramVersion;
  return island;
}

bool RunHasEnded(const absl::StatusOr<worker::IslandProgress>& end,
                 const Interrupt& interrupt) {
  if (end.ok()) return !interrupt.first().stop_requested();
  const std::string reason = GetReason(end.status());
  return reason == worker::kRunCompleted || reason == worker::kRunCancelled;
}

// The enrolment, if there is one, with what follows from it.
absl::StatusOr<std::optional<Enrolment>> EnrolFor(Context& context,
                                                  const SandboxMark& sandbox,
                                                  JoinOptions& options,
                                                  rpc::Security& security,
                                                  const Lent& lent,
                                                  const std::stop_token& stop) {
  JoinRequestFlags flags;
  flags.address = options.address;
  flags.run_id = options.run_id;
  flags.island_id = options.island_id;
  flags.has_tls_files = !security.tls.empty();
  ASSIGN_OR_RETURN(std::optional<Enrolment> enrolment,
                   EnrolIsland(context, sandbox, flags, lent, stop));
  if (!enrolment.has_value()) return enrolment;
  if (options.place.process_count > 1) {
    return UsageError("an island of several processes cannot enrol",
                      "Ask the operator for a certificate: `atoll ca issue "
                      "--role island`.");
  }
  const EnrolmentRecord& record = enrolment->record();
  options.address = record.coordinator_address;
  options.run_id = record.run_id;
  options.island_id = record.name;
  security.tls = enrolment->tls_files();
  return enrolment;
}

absl::StatusOr<std::unique_ptr<Volunteer>> MakeVolunteer(
    const JoinOptions& options, Limits limits, bool is_enrolled,
    const IslandReporter& reporter) {
  VolunteerOptions volunteer;
  volunteer.run_id = options.run_id;
  volunteer.island_id = options.island_id;
  // The processes of an island may share a directory.
  if (options.place.process_index == 0) {
    volunteer.directory = options.work_directory;
  }
  volunteer.limits = std::move(limits);
  // The processes of an island leave together, or not at all.
  if (options.place.process_count > 1) {
    volunteer.hold_max = absl::InfiniteDuration();
  }
  volunteer.retries = is_enrolled;
  volunteer.read_facts = [machine = std::make_shared<MachineUse>()](
                             absl::Time now) { return machine->Read(now); };
  volunteer.last_problem = [&reporter] { return reporter.last_warning(); };
  return Volunteer::Create(std::move(volunteer));
}

// Returns where `atoll local` finds this join. Null, with a log line: nowhere.
absl::StatusOr<std::unique_ptr<LocalServer>> StartLocal(
    const Context& context, const JoinOptions& options, Volunteer& volunteer) {
  if (options.place.process_index > 0) return nullptr;
  absl::StatusOr<std::unique_ptr<LocalServer>> server = LocalServer::Start(
      LocalDirectory(context.state_directory),
      LocalName(AbsolutePath(options.work_directory), options.run_id,
                options.island_id),
      [&volunteer](const Json& request) { return volunteer.Handle(request); });
  if (absl::IsAlreadyExists(server.status())) {
    return WithHint(
        absl::AlreadyExistsError(absl::StrCat(
            "island ", options.island_id, " of run ", options.run_id,
            " already runs on this machine")),
        "`atoll local status` shows it. End it first, or give another "
        "--island-id.");
  }
  if (server.ok()) return server;
  LOG(INFO) << "`atoll local` will not find this island: "
            << server.status().message();
  return nullptr;
}

// Prints the result of an island that has ended as it should.
absl::Status TellEnd(Context& context, const JoinOptions& options,
                     const absl::StatusOr<worker::IslandProgress>& end,
                     bool is_terminated) {
  if (GetReason(end.status()) == worker::kRunCompleted) {
    // A supervisor that starts it again after the run's end is done too.
    context.output().Print(
        Json{{"run_id", options.run_id}, {"island_id", options.island_id}},
        absl::StrCat(end.status().message(), "\n"));
    return absl::OkStatus();
  }
  if (is_terminated && (end.ok() || absl::IsCancelled(end.status()))) {
    return WithReason(
        WithExitCode(absl::CancelledError("SIGTERM or SIGHUP ended the island"),
                     ExitCode::kTerminated),
        "TERMINATED");
  }
  if (worker::IsProcessLost(end.status())) {
    return WithHint(WithExitCode(end.status(), ExitCode::kProcessLost),
                    "Start all processes of the island again; it resumes from "
                    "the servers' parameters.");
  }
  RETURN_IF_ERROR(end.status());
  context.output().Print(ToData(*end, options.run_id, options.island_id),
                         ToText(*end, options.run_id, options.island_id));
  return absl::OkStatus();
}

absl::Status Join(Context& context, JoinOptions options) {
  RETURN_IF_ERROR(failpoint::Arm(options.failpoint));
  ASSIGN_OR_RETURN(const absl::Duration wait_for_run, ReadWait(options));
  ASSIGN_OR_RETURN(const server::BandwidthCaps caps,
                   ReadCaps(options.caps, options.place.process_count));
  ASSIGN_OR_RETURN(options.data_roots,
                   ReadAllowedData(ConfigDirectory(context.environment)));
  ASSIGN_OR_RETURN(const int64_t data_cache_bytes,
                   ReadCacheSize(options.data_cache));
  RETURN_IF_ERROR(CheckDeviceFlag(options.place.device));
  RETURN_IF_ERROR(CheckPlace(options));
  if (options.require_sandbox) RETURN_IF_ERROR(CheckSandbox());
  ASSIGN_OR_RETURN(Limits limits,
                   ReadLimits(options.volunteer, options.place.process_count,
                              !options.trainer.empty()));
  ASSIGN_OR_RETURN(const Lent lent, ReadLent(options.volunteer.lent));
  RETURN_IF_ERROR(SetNice(options.volunteer));
  SetMinimumLogSeverity(LogSeverity::kInfo);
  IslandReporter reporter(context.progress_options, context.messages());
  const LogToReporter log(reporter);
  const auto say = [&](int number) {
    reporter.Note(
        number == SIGINT
            ? "leaving cleanly; press Ctrl-C again to end at once"
            : absl::StrCat(number == SIGHUP ? "SIGHUP" : "SIGTERM",
                           ": ending, for a restart; another signal ends at "
                           "once"));
  };
  Interrupt interrupt(say, /*kill_at=*/3);
  rpc::Security security = context.MakeSecurity();
  const SandboxMark sandbox = ReadSandboxMark(context.environment, ::getpid());
  ASSIGN_OR_RETURN(std::optional<Enrolment> enrolment,
                   EnrolFor(context, sandbox, options, security, lent,
                            interrupt.first()));
  if (options.service) {
    if (enrolment.has_value()) {
      RETURN_IF_ERROR(CheckService(
          {.address = options.address,
           .channel =
               rpc::MakeChannelOptions(rpc::ChannelKind::kControl, security),
           .stop = interrupt.first()},
          options.run_id, ReadRunLimits(context, options, lent, enrolment),
          {.data_path = options.data_path, .roots = options.data_roots}));
    }
    return InstallService(context, *options.command,
                          {options.run_id, options.work_directory,
                           options.volunteer.nice.value_or(10),
                           lent.memory_bytes});
  }
  if (options.address.empty()) {
    options.address = context.settings.Get("coordinator");
    if (!options.run_id.empty() && security.tls.empty()) {
      reporter.Note(absl::StrCat("this machine is not enrolled in a run ",
                                 options.run_id, ": asks the coordinator at ",
                                 options.address));
    }
  }
  if (options.run_id.empty()) {
    ASSIGN_OR_RETURN(options.run_id,
                     OnlyRun(context, options.address, interrupt.first()));
  }
  if (options.island_id.empty()) {
    options.island_id = DefaultIslandId(security);
  }
  // The ids name a directory, and a peer may have given them.
  RETURN_IF_ERROR(ValidateId("run_id", options.run_id));
  RETURN_IF_ERROR(ValidateId("island_id", options.island_id));
  if (options.work_directory.empty()) {
    options.work_directory =
        absl::StrCat(context.state_directory, "/islands/", options.run_id, "/",
                     options.island_id);
  }
  // Once: inside the sandbox this program runs a second time.
  if (!sandbox.is_inside) {
    RETURN_IF_ERROR(PrepareDataDirectory(options.work_directory));
  }
  worker::RunIslandOptions island = IslandOptions(context, options, security);
  // Nothing of the run has been opened yet.
  if (!sandbox.is_inside && (options.require_sandbox || NeedsSandbox(island))) {
    SandboxRequest request = MakeSandboxRequest(
        context, island, enrolment.has_value() ? enrolment->directory() : "",
        options.metrics.port_file);
    request.is_required = options.require_sandbox;
    interrupt.Pause();
    if (interrupt.first().stop_requested()) {
      return TellEnd(context, options, absl::CancelledError("stopped early"),
                     interrupt.terminated().stop_requested());
    }
    RETURN_IF_ERROR(EnterSandbox(std::move(request)));
    interrupt.Resume();
  }
  Metrics metrics;
  const auto certificate = MakeCertificateMetrics(security.tls.cert);
  metrics.Add(certificate);
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsListener> listener,
                   MetricsListener::Start(options.metrics, metrics));
  ASSIGN_OR_RETURN(island.recipes, ReadRecipes());
  island.caps = caps;
  island.data_cache_bytes_max = data_cache_bytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<Volunteer> volunteer,
                   MakeVolunteer(options, std::move(limits),
                                 enrolment.has_value(), reporter));
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> local,
                   StartLocal(context, options, *volunteer));
  island.open_data_store = CountReads(
      MakeDataOpener(context, {options.address, options.run_id}, security,
                     enrolment, interrupt.first()),
      [&volunteer](int64_t bytes) { volunteer->CountBytes(bytes); });
  island.check_run = [limits = ReadRunLimits(context, options, lent,
                                             enrolment)](
                         const v1::RunSpec& spec) {
    return CheckRunSize(spec, limits);
  };
  island.stop = interrupt.first();
  island.stop_at_once = interrupt.second();
  island.stop_for_restart = interrupt.terminated();
  island.metrics = &metrics;
  island.wait_for_run = wait_for_run;
  island.on_progress = [&](const worker::IslandProgress& at) {
    reporter.Report(at, absl::Now());
  };
  std::optional<EnrolmentRenewer> renewer;
  if (enrolment.has_value()) {
    renewer.emplace(*enrolment, MakeGateCall(context.settings.proxy()));
  }
  absl::StatusOr<worker::IslandProgress> end = volunteer->Run(
      std::move(island), [&](const worker::RunIslandOptions& once) {
        return renewer.has_value() ? RunEnrolled(once, *enrolment, *renewer)
                                   : worker::RunIsland(once);
      });
  reporter.Clear();
  const bool has_ended =
      RunHasEnded(end, interrupt) && !volunteer->finishing();
  if (has_ended && options.idle_after_run) {
    reporter.Note("the run has ended: idle until a signal (--idle-after-run)");
    metrics.SetReady(absl::OkStatus());
    WaitForStop(interrupt.first());
  }
  const absl::Status told =
      TellEnd(context, options, end,
              !has_ended && interrupt.terminated().stop_requested());
  return sandbox.is_inside ? HintAtSandbox(told) : told;
}

}  // namespace

void AddJoin(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("join", "Join a run as an island: train on this machine");
  command.Footer(
      "The first Ctrl-C leaves cleanly, the second ends at once; neither "
      "loses\n"
      "an acknowledged contribution. The same command with the same island id\n"
      "and directory resumes.\n"
      "SIGTERM ends with exit code 12, for a supervisor that starts the "
      "island\n"
      "again: in an elastic run it leaves cleanly; in a strict run it stays "
      "a\n"
      "member, so every round waits for it. Exit code 0: the run is "
      "complete,\n"
      "also if it was before the join, or Ctrl-C ended it.\n"
      "With a join string, which the operator sends, nothing else is needed.\n"
      "The next time --run is enough: the certificate is kept and renewed.\n"
      "  atoll join -\n"
      "  atoll join - --hours 22:00-07:00 --memory 4GB --service\n"
      "`atoll local` shows, pauses and finishes it.\n"
      "A run's data comes from --data, from a folder of `atoll data allow`, or\n"
      "by https:// or s3://. From a private address, or without TLS, only with\n"
      "--allow-data-host HOST; with your own keys for s3://, only with\n"
      "--data-credentials.\n"
      "Examples:\n"
      "  atoll join 10.0.0.7:7400 --run laptop --island-id kitchen "
      "--threads 4\n"
      "  atoll join 10.0.0.7:7400 --up 5Mb/s --down 20Mb/s\n"
      "An island on the GPUs of this machine, one rank per GPU:\n"
      "  atoll join 10.0.0.7:7400 --device cuda --mesh dp_shard=8\n"
      "An island of two processes with four ranks each, started like "
      "torchrun.\n"
      "The second process has --process-index 1. A restarted process finds "
      "the\n"
      "other, and the island resumes from the servers' parameters:\n"
      "  atoll join 10.0.0.7:7400 --island-id rack --mesh dp_shard=4,tp=2 \\\n"
      "    --processes 2 --process-index 0 --rendezvous 10.0.1.1:29500 \\\n"
      "    --rendezvous-secret rack.secret\n"
      "Make the secret once with `openssl rand -hex 32` and copy it to all\n"
      "machines. An island with --tls-key, or on one machine, needs none.");
  auto options = std::make_shared<JoinOptions>();
  command.Add("address", options->address,
              "HOST:PORT of the coordinator, or a join string; -: "
              "read a join string; default: --coordinator, or where "
              "this machine is enrolled in --run");
  command.Add("--run", options->run_id,
              "Id of the run; default: the only active run");
  command
      .Add("--wait-for-run", options->wait_for_run,
           "Longest time to wait for a run that does not exist yet: "
           "30s, 5m")
      .ShowDefault();
  command.AddFlag("--idle-after-run", options->idle_after_run,
                  "Once the run has ended, wait for a signal instead of "
                  "exiting: for a supervisor that restarts every process "
                  "that ends");
  command.Add("--island-id", options->island_id,
              "Id of this island, the same after a restart; default: "
              "the certificate's id, else the host's name. With a join "
              "string it gets an e- at its beginning");
  command.Add("--data", options->data_path,
              "Path of the run's data on this machine; without it, and "
              "unless the data comes by URL, the run's own path must "
              "be below a folder of `atoll data allow`");
  AddDataCacheFlags(command, options->data_cache);
  command.Add("--dir,--work-dir", options->work_directory,
              "Directory for this island's local checkpoints");
  command
      .Add("--trainer", options->trainer,
           "unix:PATH, a socket where this process waits for a trainer "
           "of your own (proto/TRAINER.md), which then trains instead "
           "of Atoll's engine")
      .Check({"", [](const std::string& text) -> std::string {
                return text.rfind("unix:", 0) == 0 && text.size() > 5
                           ? ""
                           : "\"" + text + "\" is not of the form unix:PATH";
              }});
  AddThreadsFlag(command, options->threads);
  AddDeviceFlag(command, "this island", options->place.device);
  AddCapFlags(command, "this island, all its processes together,",
              options->caps);
  command
      .Add("--streams", options->streams,
           "Connections to spread a large push or pull over")
      .Check(flags::Range(1, 64))
      .ShowDefault();
  command.Add("--mesh", options->place.mesh,
              "Ranks of the whole island, e.g. dp_shard=4,tp=2; names: "
              "pp, dp_replicate, dp_shard, ep, cp, tp; default: one "
              "rank");
  command
      .Add("--processes", options->place.process_count,
           "Processes of the island; they share its ranks evenly")
      .Check(flags::Range(1, 65536))
      .ShowDefault();
  command
      .Add("--process-index", options->place.process_index,
           "Index of this process, from 0; 0 talks to the coordinator")
      .ShowDefault();
  command.Add("--rendezvous", options->place.rendezvous,
              "HOST:PORT where process 0 listens for the others; "
              "encrypted between machines, unless --insecure");
  command.Add("--rendezvous-secret", options->rendezvous_secret,
              "File with the secret that all processes of the island "
              "share; default: the --tls-key file, else, on one "
              "machine, a generated file");
  AddMeshFlags(command, options->place);
  command
      .Add("--restarts", options->place.restart_count_max,
           "Most restarts of the island in a row after losing a "
           "process, with no contribution between; then exit code 11")
      .Check(flags::Range(0, 1000000))
      .ShowDefault();
  AddVolunteerFlags(command, options->volunteer);
  command.AddFlag("--service", options->service,
                  "Join now and at each start of this machine: make a "
                  "systemd unit for this user, with these flags, and end");
  command.AddFlag("--require-sandbox", options->require_sandbox,
                  "Do not train where the kernel cannot limit the island to "
                  "its own files (Landlock, Linux 5.13): exit code 10");
  options->command = &command;
  flags::AddMetricsFlags(command, options->metrics);
  command.Add("--failpoint", options->failpoint,
              "For tests: die at failpoint NAME, or at its Nth hit, NAME@N");
  SetAction(command, context, Join, options);
}

}  // namespace atl::cli
