#include "cli/settings/settings.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/flags/spelling.h"
#include "base/host_port/address_block.h"
#include "base/host_port/host_port.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/run_file/nearest.h"
#include "toml++/toml.h"

namespace atl::cli {
namespace {

struct ProfileValue {
  std::string value;
  int line = 0;
};

absl::Status ProfileError(const std::string& path, int line,
                          absl::string_view message) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", message)),
      "PROFILE_INVALID");
}

std::string Directory(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

const SettingDefinition* FindDefinition(absl::string_view name) {
  for (const SettingDefinition& definition : SettingDefinitions()) {
    if (definition.name == name) return &definition;
  }
  return nullptr;
}

absl::Status UnknownKey(const std::string& path, int line,
                        absl::string_view key) {
  std::vector<std::string> names;
  for (const SettingDefinition& definition : SettingDefinitions()) {
    names.push_back(definition.name);
  }
  std::string message = absl::StrCat("unknown setting '", key, "'");
  const std::string nearest = NearestName(key, names);
  if (!nearest.empty()) {
    absl::StrAppend(&message, "; did you mean '", nearest, "'?");
  }
  return ProfileError(path, line, message);
}

absl::StatusOr<std::map<std::string, ProfileValue>> ParseProfile(
    const std::string& path, const std::string& text) {
  std::map<std::string, ProfileValue> values;
  toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return ProfileError(path, parsed.error().source().begin.line,
                        std::string(parsed.error().description()));
  }
  for (auto&& [key, node] : parsed.table()) {
    const int line = key.source().begin.line;
    const std::string name(key.str());
    const SettingDefinition* definition = FindDefinition(name);
    if (definition == nullptr) return UnknownKey(path, line, name);
    std::string value;
    if (const auto* text_value = node.as_string()) {
      value = text_value->get();
    } else if (node.is_integer() || node.is_floating_point() ||
               node.is_boolean()) {
      std::ostringstream stream;
      node.visit([&](auto&& n) { stream << n; });
      value = stream.str();
    } else {
      return ProfileError(
          path, line,
          absl::StrCat("'", name, "' must be a string, number or boolean"));
    }
    if (definition->is_path && !value.empty() && value[0] != '/') {
      value = absl::StrCat(Directory(path), "/", value);
    }
    values[name] = {value, line};
  }
  return values;
}

// The first of `names` that is set and not empty; sets `origin` to its name.
std::string FindVariable(const Environment& environment,
                         std::initializer_list<const char*> names,
                         std::string& origin) {
  for (const char* name : names) {
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty()) continue;
    origin = name;
    return found->second;
  }
  return "";
}

std::string VariableName(absl::string_view name) {
  return absl::StrCat("ATOLL_", absl::AsciiStrToUpper(name));
}

}  // namespace

absl::string_view SettingSourceName(SettingSource source) {
  switch (source) {
    case SettingSource::kDefault:
      return "default";
    case SettingSource::kProfile:
      return "profile";
    case SettingSource::kEnvironment:
      return "environment";
    case SettingSource::kFlag:
      return "flag";
  }
  return "";
}

const std::vector<SettingDefinition>& SettingDefinitions() {
  static const auto& definitions = *new std::vector<SettingDefinition>{
      {"coordinator", "127.0.0.1:7400", "HOST:PORT of the coordinator"},
      {"format", "table", "Format of results: table, json or jsonl"},
      {"timeout", "30s", "Longest wait for one answer: 30s, 2m"},
      {"insecure", "false",
       "Allow unencrypted connections to other machines", false, true},
      {"proxy", "",
       "http://[USER:PASSWORD@]HOST:PORT of an HTTP proxy for all but "
       "loopback; default: HTTPS_PROXY, but for NO_PROXY"},
      {"tls_dir", "",
       "Directory of `atoll ca issue`: tls.crt, tls.key and ca.crt", true},
      {"tls_ca", "",
       "PEM file of the CA that signed the other side's certificate", true},
      {"tls_cert", "", "PEM file of this side's certificate", true},
      {"tls_key", "", "PEM file of this side's private key", true},
      {"allow_data_host", "",
       "HOST of a run's data that `join` and `doctor` may dial although it is "
       "private, or without TLS; may be repeated",
       false, false, true},
      {"data_credentials", "false",
       "Let `join` and `doctor` read a run's s3:// data with this user's own "
       "keys (AWS_*, ~/.aws)",
       false, true},
  };
  return definitions;
}

absl::StatusOr<Settings> Settings::Resolve(const Sources& sources) {
  std::map<std::string, ProfileValue> profile;
  if (!sources.profile_text.empty()) {
    auto parsed = ParseProfile(sources.profile_path, sources.profile_text);
    if (!parsed.ok()) return parsed.status();
    profile = *std::move(parsed);
  }
  Settings settings;
  for (const SettingDefinition& definition : SettingDefinitions()) {
    Setting setting;
    setting.name = definition.name;
    setting.value = definition.default_value;
    const std::string variable = VariableName(definition.name);
    const auto flag = sources.flags.find(definition.name);
    const auto in_environment = sources.environment.find(variable);
    const auto in_profile = profile.find(definition.name);
    if (flag != sources.flags.end()) {
      setting.value = flag->second;
      setting.source = SettingSource::kFlag;
      setting.origin = flags::FlagName(definition.name);
    } else if (in_environment != sources.environment.end()) {
      setting.value = in_environment->second;
      setting.source = SettingSource::kEnvironment;
      setting.origin = variable;
    } else if (in_profile != profile.end()) {
      setting.value = in_profile->second.value;
      setting.source = SettingSource::kProfile;
      setting.origin =
          absl::StrCat(sources.profile_path, ":", in_profile->second.line);
    }
    if (definition.is_switch && setting.value == "1") setting.value = "true";
    if (definition.is_switch && setting.value == "0") setting.value = "false";
    settings.settings_.push_back(std::move(setting));
  }
  settings.TakeTlsDirectory();
  const std::string& timeout = settings.Get("timeout");
  if (!absl::ParseDuration(timeout, &settings.timeout_) ||
      settings.timeout_ <= absl::ZeroDuration()) {
    return UsageError(
        absl::StrCat("timeout '", timeout, "' is not a positive duration"),
        "Write it as 30s, 500ms or 2m.");
  }
  for (const SettingDefinition& definition : SettingDefinitions()) {
    const std::string& value = settings.Get(definition.name);
    if (definition.is_switch && value != "true" && value != "false") {
      return UsageError(absl::StrCat(definition.name,
                                     " must be true or false, not '", value,
                                     "'"));
    }
  }
  settings.insecure_ = settings.Get("insecure") == "true";
  for (const std::string& host : settings.allowed_data_hosts()) {
    const std::string bare(absl::StripPrefix(absl::StripSuffix(host, "]"), "["));
    const bool is_right = absl::StrContains(bare, ":")
                              ? FindAddressBlockOfHost(bare).has_value()
                              : ParseHostPort(JoinHostPort(bare, 1)).ok();
    if (!is_right) {
      return UsageError(
          absl::StrCat("allow_data_host '", host, "' is not a host"),
          "Give the HOST of the data's URL, without scheme, port and path.");
    }
  }
  RETURN_IF_ERROR(settings.ResolveProxy(sources.environment));
  return settings;
}

void Settings::TakeTlsDirectory() {
  const auto find = [this](absl::string_view name) {
    return std::find_if(settings_.begin(), settings_.end(),
                        [&](const Setting& s) { return s.name == name; });
  };
  const Setting directory = *find("tls_dir");
  if (directory.value.empty()) return;
  for (const auto& [name, file] : {std::pair("tls_cert", "tls.crt"),
                                   std::pair("tls_key", "tls.key"),
                                   std::pair("tls_ca", "ca.crt")}) {
    Setting& setting = *find(name);
    if (!setting.value.empty() && setting.source >= directory.source) continue;
    setting.value = absl::StrCat(directory.value, "/", file);
    setting.source = directory.source;
    setting.origin = directory.origin;
  }
}

absl::Status Settings::ResolveProxy(const Environment& environment) {
  const auto at =
      std::find_if(settings_.begin(), settings_.end(),
                   [](const Setting& s) { return s.name == "proxy"; });
  std::string no_proxy;
  const bool is_ours = at->source != SettingSource::kDefault;
  if (!is_ours) {
    at->value =
        FindVariable(environment, {"HTTPS_PROXY", "https_proxy"}, at->origin);
    // Others accept an address alone.
    if (!at->value.empty() && !absl::StrContains(at->value, "://")) {
      at->value.insert(0, "http://");
    }
    if (!at->value.empty()) at->source = SettingSource::kEnvironment;
    std::string unused;
    no_proxy = FindVariable(environment, {"NO_PROXY", "no_proxy"}, unused);
  }
  const absl::StatusOr<Proxy> parsed = ParseProxy(at->value);
  const std::string fault =
      absl::StrCat(at->origin, ": ", parsed.status().message());
  if (!parsed.ok() && is_ours) {
    return UsageError(fault, "--proxy \"\" uses none.");
  }
  if (parsed.ok()) {
    proxy_ = *parsed;
  } else {
    proxy_.fault = absl::StrCat(fault,
                                "; name another with --proxy (\"\": none), or "
                                "the hosts that need none in NO_PROXY");
  }
  proxy_.no_proxy = no_proxy;
  at->value = RedactProxy(at->value);
  return absl::OkStatus();
}

const std::string& Settings::Get(absl::string_view name) const {
  for (const Setting& setting : settings_) {
    if (setting.name == name) return setting.value;
  }
  // An unknown name is a bug of the caller.
  std::abort();
}

absl::Status Settings::DropTls() {
  std::vector<Setting*> tls;
  for (Setting& setting : settings_) {
    if (absl::StartsWith(setting.name, "tls_")) tls.push_back(&setting);
  }
  for (const Setting* setting : tls) {
    if (setting->source == SettingSource::kFlag && !setting->value.empty()) {
      return UsageError(
          absl::StrCat(setting->origin, ": the programs of this command have "
                                        "no TLS"),
          "Leave it out: they listen on this machine alone.");
    }
  }
  for (Setting* setting : tls) {
    setting->value.clear();
    setting->source = SettingSource::kDefault;
    setting->origin.clear();
  }
  return absl::OkStatus();
}

std::vector<std::string> Settings::allowed_data_hosts() const {
  return absl::StrSplit(Get("allow_data_host"), ',', absl::SkipWhitespace());
}

std::string ConfigDirectory(const Environment& environment) {
  std::string origin;
  if (const std::string base =
          FindVariable(environment, {"XDG_CONFIG_HOME"}, origin);
      !base.empty()) {
    return absl::StrCat(base, "/atoll");
  }
  const std::string home = FindVariable(environment, {"HOME"}, origin);
  return home.empty() ? "" : absl::StrCat(home, "/.config/atoll");
}

std::string GetVariable(const Environment& environment,
                        const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string DefaultProfilePath(const Environment& environment) {
  std::string origin;
  if (const std::string path =
          FindVariable(environment, {"ATOLL_PROFILE"}, origin);
      !path.empty()) {
    return path;
  }
  const std::string directory = ConfigDirectory(environment);
  return directory.empty() ? "" : absl::StrCat(directory, "/profile.toml");
}

}  // namespace atl::cli
