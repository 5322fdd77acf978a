#include "cli/doctor/doctor.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/io/unique_fd.h"
#include "base/mirror/open_mirror.h"
#include "base/object_store/object_store.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "cli/doctor/check.h"
#include "cli/doctor/forecast.h"
#include "cli/doctor/operator_doctor.h"
#include "cli/doctor/subject.h"
#include "cli/doctor/volunteer_doctor.h"
#include "cli/enrol/join_input.h"
#include "cli/flags/compute_flags.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/flags/lent_flags.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/volunteer/data_consent.h"
#include "coordinator/client/client.h"
#include "worker/api/measure_speed.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kRunTimeout = absl::Seconds(4);
constexpr absl::Duration kSpeedTime = absl::Milliseconds(1500);

struct DoctorOptions {
  SubjectFlags subject;
  bool of_operator = false;
  std::string mirror;
  std::string data_path;
  DataCacheFlags data_cache;
  LentFlags lent;
};

// A table shows each check at once; other formats show all checks at the end.
Checks MakeChecks(Output& output) {
  if (output.format() != OutputFormat::kTable) return Checks();
  return Checks([&output](const Check& check) {
    const std::string text = ToText(check);
    output.PrintEvent(Json(), absl::StripSuffix(text, "\n"));
  });
}

RunGetter MakeRunGetter(const Proxy& proxy, std::stop_token stop) {
  return [proxy, stop](const std::string& address, const rpc::TlsFiles& tls,
                       const std::string& run_id) -> absl::StatusOr<v1::Run> {
    rpc::Security security;
    security.tls = tls;
    security.proxy = proxy;
    coordinator::ClientOptions options;
    options.address = address;
    options.channel =
        rpc::MakeChannelOptions(rpc::ChannelKind::kControl, security);
    options.timeout = kRunTimeout;
    options.stop = stop;
    ASSIGN_OR_RETURN(const auto client, coordinator::MakeClient(options));
    ASSIGN_OR_RETURN(v1::GetRunResponse response, client->GetRun(run_id));
    return std::move(*response.mutable_run());
  };
}

absl::Status PrintResult(Output& output, const Checks& checks,
                         const Json& forecast, absl::string_view text) {
  const Json data = {{"checks", checks.ToData()}, {"forecast", forecast}};
  const absl::Status status = checks.ToStatus();
  if (status.ok()) {
    output.Print(data, text);
  } else {
    output.PrintFailed(data, text, status);
  }
  return status;
}

// nullopt: the run, the link or the speed is not known.
std::optional<DoctorForecast> Foresee(const VolunteerDoctor& doctor,
                                      const std::function<bool()>& stopped) {
  if (!doctor.run().has_value() || !doctor.link().has_value()) {
    return std::nullopt;
  }
  const absl::StatusOr<double> speed = worker::MeasureTokensPerSecond(
      *doctor.run(), ChooseThreadCount(0), kSpeedTime, stopped);
  if (!speed.ok()) return std::nullopt;
  const absl::StatusOr<DoctorForecast> forecast =
      MakeForecast(*doctor.run(), *doctor.link(), *speed);
  if (!forecast.ok()) return std::nullopt;
  return *forecast;
}

// Proves by two writes that the mirror creates an object once.
Check CheckMirror(const Context& context, const std::string& url,
                  std::stop_token stop) {
  const auto get_variable =
      [&context](absl::string_view name) -> std::optional<std::string> {
    const auto found = context.environment.find(std::string(name));
    if (found == context.environment.end()) return std::nullopt;
    return found->second;
  };
  const mirror::MirrorOpener open =
      mirror::MakeMirrorOpener(url, get_variable, context.settings.proxy());
  Waiting waiting;
  waiting.cancelled = [stop] { return stop.stop_requested(); };
  const auto store = open(waiting);
  absl::Status status = store.status();
  if (status.ok()) {
    status = CheckCreatesOnce(**store, absl::StrCat("probe-", RandomId()));
  }
  if (status.ok()) {
    return Passed("mirror", absl::StrCat(url, " creates objects once"));
  }
  return Failed("mirror", status.message(),
                "Look at the URL, at AWS_* here, and at the bucket's policy: "
                "it must let you read, write, list and delete.");
}

absl::Status CheckCluster(Context& context, const DoctorOptions& flags) {
  if (!flags.subject.address.empty() || !flags.subject.run_id.empty()) {
    return UsageError("--operator checks a cluster, not a run",
                      "Leave out the join string and --run.");
  }
  ASSIGN_OR_RETURN(const UniqueFd stop, MakeWaker());
  const Interrupt interrupt;
  const std::stop_callback wake(interrupt.first(),
                                [&stop] { SetWaker(stop.get()); });
  coordinator::ClientOptions options;
  options.address = context.settings.Get("coordinator");
  options.channel = context.MakeChannelOptions(rpc::ChannelKind::kControl);
  options.timeout = std::min(context.settings.timeout(), kRunTimeout);
  options.stop = interrupt.first();
  ASSIGN_OR_RETURN(const auto client, coordinator::MakeClient(options));
  OperatorDoctor::Spec spec;
  spec.client = client.get();
  spec.coordinator_address = options.address;
  spec.security = context.MakeSecurity();
  spec.stop_fd = stop.get();
  Checks checks = MakeChecks(context.output());
  OperatorDoctor(spec, checks).Run();
  if (!flags.mirror.empty()) {
    checks.Add(CheckMirror(context, flags.mirror, interrupt.first()));
  }
  if (interrupt.first().stop_requested()) {
    return absl::CancelledError("stopped before all checks were made");
  }
  return PrintResult(context.output(), checks, Json::object(), "");
}

absl::Status Doctor(Context& context, const DoctorOptions& options) {
  if (options.of_operator) return CheckCluster(context, options);
  if (!options.mirror.empty()) {
    return UsageError("--mirror is for an operator", "Add --operator.");
  }
  VolunteerDoctor::Spec spec;
  std::stop_source stopping;
  ASSIGN_OR_RETURN(
      spec.gate,
      FindSubject(
          options.subject, absl::StrCat(context.state_directory, "/enrolments"),
          StandardJoinInput(), context.messages(),
          MakeRunGetter(context.settings.proxy(), stopping.get_token())));
  ASSIGN_OR_RETURN(spec.cache_bytes_max, ReadCacheSize(options.data_cache));
  ASSIGN_OR_RETURN(spec.lent, ReadLent(options.lent));
  spec.state_directory = context.state_directory;
  spec.cache_directory = options.data_cache.directory.empty()
                             ? DefaultDataCache(context.state_directory)
                             : options.data_cache.directory;
  spec.proxy = context.settings.proxy();
  spec.data_rights.data_path = options.data_path;
  ASSIGN_OR_RETURN(spec.data_rights.roots,
                   ReadAllowedData(ConfigDirectory(context.environment)));
  spec.make_opener = [&context](const std::string& address,
                                worker::StoreAccess access) {
    return MakeRunStoreOpener(
        context.settings, context.environment,
        MakeBlockFinder(address, /*looks_up=*/false, context.settings.proxy()),
        std::move(access));
  };
  ASSIGN_OR_RETURN(const UniqueFd stop, MakeWaker());
  // Not before: Ctrl-C ends a wait for the join string.
  const Interrupt interrupt;
  const std::stop_callback wake(interrupt.first(), [&] {
    stopping.request_stop();
    SetWaker(stop.get());
  });
  spec.stop_fd = stop.get();
  spec.stopped = [token = interrupt.first()] { return token.stop_requested(); };
  if (!spec.gate.has_value()) {
    context.output().Message(
        "this checks the machine alone; `atoll doctor -` also checks the way "
        "to a run");
  }
  Checks checks = MakeChecks(context.output());
  VolunteerDoctor doctor(spec, checks);
  doctor.Run();
  const std::optional<DoctorForecast> forecast = Foresee(doctor, spec.stopped);
  if (interrupt.first().stop_requested()) {
    return absl::CancelledError("stopped before all checks were made");
  }
  if (!forecast.has_value()) {
    return PrintResult(context.output(), checks, Json::object(), "");
  }
  return PrintResult(context.output(), checks, ToData(*forecast),
                     ToText(*forecast));
}

}  // namespace

void AddDoctor(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "doctor", "Check this machine, and the way to a run, before joining");
  command.Footer(
      "Each check is PASSED, WARN or FAILED, with advice. If one FAILED, the\n"
      "exit code is 10. The command takes about 15 seconds. It changes\n"
      "nothing: the token of a join string keeps its uses. Without a join\n"
      "string or --run, it checks the way to the run in which this machine is\n"
      "enrolled, or else the machine only.\n"
      "With --operator: the coordinator, its servers and gates, and its runs.\n"
      "Examples:\n"
      "  atoll doctor -                 read a join string, and check it\n"
      "  atoll doctor - --data tokens   the run's data is here\n"
      "  atoll doctor --run spring      an enrolled machine\n"
      "  atoll doctor -o json           for scripts\n"
      "  atoll doctor --operator --coordinator 10.0.0.7:7400");
  auto options = std::make_shared<DoctorOptions>();
  command.Add("address", options->subject.address, "A join string; -: read it");
  command.Add("--run", options->subject.run_id,
              "Id of the run in which this machine is enrolled");
  command.AddFlag("--operator", options->of_operator,
                  "Check the cluster of --coordinator instead");
  command
      .Add("--mirror", options->mirror,
           "With --operator: the cluster's mirror, s3:// or file://; writes a "
           "probe there twice, and removes it")
      .Check({"", [](const std::string& url) {
                return mirror::CheckMirrorUrl(url);
              }});
  command.Add("--data", options->data_path,
              "Path of the run's data on this machine, as for `atoll "
              "join`");
  AddDataCacheFlags(command, options->data_cache);
  AddLentFlags(command, options->lent);
  SetAction(command, context, Doctor, options);
}

}  // namespace atl::cli
