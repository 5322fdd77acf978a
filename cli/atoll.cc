// The `atoll` command: reads the command line and the environment, and runs one
// subcommand. No other file of cli reads them.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/flags/spelling.h"
#include "base/obs/log.h"
#include "base/obs/program.h"
#include "base/obs/signals.h"
#include "base/rpc/allocator.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/enrol/call_gate.h"
#include "cli/enrol/certificate_keeper.h"
#include "cli/output/error.h"
#include "cli/output/output.h"
#include "cli/output/table.h"
#include "cli/settings/settings.h"

extern char** environ;

namespace atl::cli {
namespace {

Environment ReadEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals);
    absl::string_view value = text;
    value.remove_prefix(equals + 1);
    // A file's last line end, which a shell or a Secret has kept.
    if (absl::StartsWith(name, "ATOLL_") && absl::ConsumeSuffix(&value, "\n")) {
      absl::ConsumeSuffix(&value, "\r");
    }
    environment[name] = std::string(value);
  }
  return environment;
}

// Values of the settings' flags, as given.
struct SettingFlags {
  std::map<std::string, std::string> values;
  std::map<std::string, bool> switches;
  std::string profile;
};

void AddSettingFlags(flags::Command& app, SettingFlags& flags) {
  for (const SettingDefinition& definition : SettingDefinitions()) {
    if (definition.is_switch) {
      app.AddFlag(flags::FlagName(definition.name),
                  flags.switches[definition.name], definition.help);
      continue;
    }
    const std::string name = definition.name == "format"
                                 ? "-o,--format"
                                 : flags::FlagName(definition.name);
    const flags::Flag option =
        app.Add(name, flags.values[definition.name], definition.help)
            .Default(definition.default_value);
    if (definition.is_list) option.Join(',');
  }
  app.Add("--profile", flags.profile, "Profile file with settings (TOML)");
}

// Only the flags that are on the command line.
std::map<std::string, std::string> GivenFlags(const flags::Command& app,
                                              const SettingFlags& flags) {
  std::map<std::string, std::string> given;
  for (const auto& [name, value] : flags.values) {
    if (!app.Values(flags::FlagName(name)).empty()) given[name] = value;
  }
  for (const auto& [name, is_set] : flags.switches) {
    if (is_set) given[name] = "true";
  }
  return given;
}

std::string ProfilePath(const SettingFlags& flags,
                        const Environment& environment) {
  return flags.profile.empty() ? DefaultProfilePath(environment)
                               : flags.profile;
}

absl::StatusOr<Settings> ResolveSettings(const flags::Command& app,
                                         const SettingFlags& flags,
                                         const Environment& environment) {
  Settings::Sources sources;
  sources.flags = GivenFlags(app, flags);
  sources.environment = environment;
  const bool asked = !flags.profile.empty() ||
                     environment.find("ATOLL_PROFILE") != environment.end();
  sources.profile_path = ProfilePath(flags, environment);
  std::ifstream file(sources.profile_path, std::ios::binary);
  if (file) {
    sources.profile_text.assign(std::istreambuf_iterator<char>(file), {});
  } else if (asked && !sources.profile_path.empty()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the profile ", sources.profile_path));
  }
  return Settings::Resolve(sources);
}

Progress::Options ProgressOptions(const Environment& environment) {
  Progress::Options options;
  const auto term = environment.find("TERM");
  options.live = ::isatty(2) == 1 &&
                 environment.find("NO_COLOR") == environment.end() &&
                 (term == environment.end() || term->second != "dumb");
  winsize size{};
  if (::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

std::string StateDirectory(const Environment& environment) {
  const auto state = environment.find("XDG_STATE_HOME");
  if (state != environment.end() && !state->second.empty()) {
    return absl::StrCat(state->second, "/atoll");
  }
  const auto home = environment.find("HOME");
  return home == environment.end()
             ? std::string("atoll-state")
             : absl::StrCat(home->second, "/.local/state/atoll");
}

// The URL of Kubernetes' API, which every pod is told.
std::string KubernetesApiUrl(const Environment& environment) {
  const auto host = environment.find("KUBERNETES_SERVICE_HOST");
  const auto port = environment.find("KUBERNETES_SERVICE_PORT");
  if (host == environment.end() || port == environment.end()) return "";
  // An IPv6 address needs brackets.
  const bool is_v6 = absl::StrContains(host->second, ":");
  return absl::StrCat("https://", is_v6 ? "[" : "", host->second,
                      is_v6 ? "]" : "", ":", port->second);
}

std::string Executable(const char* argv0) {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, length) : std::string(argv0);
}

// The output format of errors that occur before the settings are resolved.
OutputFormat EarlyFormat(const SettingFlags& flags,
                         const Environment& environment) {
  std::string text = flags.values.at("format");
  const auto variable = environment.find("ATOLL_FORMAT");
  if (text.empty() && variable != environment.end()) text = variable->second;
  return ParseOutputFormat(text).value_or(OutputFormat::kTable);
}

absl::Status RunAction(const flags::Command& app, const SettingFlags& flags,
                       const Environment& environment, Context& context) {
  absl::StatusOr<Settings> settings = ResolveSettings(app, flags, environment);
  if (!settings.ok()) return settings.status();
  context.settings = *std::move(settings);
  context.profile_path = ProfilePath(flags, environment);
  absl::StatusOr<OutputFormat> format =
      ParseOutputFormat(context.settings.Get("format"));
  if (!format.ok()) return format.status();
  context.output().set_format(*format);
  CertificateKeeper keeper(context.settings.Get("tls_cert"),
                           MakeGateCall(context.settings.proxy()),
                           context.messages());
  context.before_client = [&keeper](const std::stop_token& stop) {
    return keeper.Prepare(absl::Now(), stop);
  };
  return context.action(context);
}

int Main(int argc, char** argv) {
  // Errors are printed once, by Output. `atoll join` logs more.
  SetMinimumLogSeverity(LogSeverity::kWarning);
  const Environment environment = ReadEnvironment();
  Output output(OutputFormat::kTable, std::cout, std::cerr);
  Context context(output, std::cerr);
  context.executable = Executable(argv[0]);
  context.arguments.assign(argv, argv + argc);
  context.state_directory = StateDirectory(environment);
  context.kubernetes_api = KubernetesApiUrl(environment);
  context.environment = environment;
  context.progress_options = ProgressOptions(environment);
  if (::isatty(2) == 1) {
    const size_t columns = context.progress_options.columns;
    output.set_columns(std::min(kTextWidth, columns));
  }

  flags::Command app(
      "atoll",
      "Atoll trains one model on islands of hardware with slow links between "
      "them.");
  app.Footer(
      "Start with:\n"
      "  atoll dev up laptop --dir /tmp/laptop    a whole run on this machine\n"
      "  atoll join HOST:PORT --run RUN           add an island to a run\n"
      "  atoll run list --coordinator HOST:PORT   list the runs");
  app.RequireCommand().FallThrough();
  app.AddVersion();
  SettingFlags flags;
  AddSettingFlags(app, flags);
  AddCommands(app, context);

  const flags::ParseResult parsed = app.Parse({argv + 1, argv + argc});
  if (parsed.ended) return static_cast<int>(output.Finish(FlushOutput()));
  if (!parsed.error.empty()) {
    output.set_format(EarlyFormat(flags, environment));
    return static_cast<int>(output.Finish(UsageError(
        parsed.error, absl::StrCat("`", app.ChosenName(),
                                   " --help` lists the commands and flags."))));
  }
  if (!context.action) {
    return static_cast<int>(
        output.Finish(absl::InternalError("no action for this subcommand")));
  }
  return static_cast<int>(
      output.Finish(RunAction(app, flags, environment, context)));
}

}  // namespace
}  // namespace atl::cli

int main(int argc, char** argv) {
  atl::PrepareProcess();
  atl::rpc::TuneAllocator();
  return atl::cli::Main(argc, argv);
}
