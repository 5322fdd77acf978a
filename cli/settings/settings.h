// Settings of the `atoll` command and where each came from.
//
// One order, always: flag, then environment (ATOLL_*), then profile file, then
// default. (CLI11's own order lets a file beat the environment; its environment
// and file support is not used.)
//
// Pure: the environment comes as a map, which main reads, and the profile as
// text. Thread-compatible.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::cli {

// Variables by name, as main saw them.
using Environment = std::map<std::string, std::string>;

enum class SettingSource { kDefault, kProfile, kEnvironment, kFlag };

// "default", "profile", "environment", "flag".
absl::string_view SettingSourceName(SettingSource source);

// One setting that exists.
struct SettingDefinition {
  std::string name;           // "tls_ca"; the flag is --tls-ca, the variable
                              // ATOLL_TLS_CA.
  std::string default_value;  // Empty for none.
  std::string help;
  bool is_path = false;  // Profile values are relative to the profile.
};

// All of them, in the order in which they are shown.
const std::vector<SettingDefinition>& SettingDefinitions();

// A setting's value and origin.
struct Setting {
  std::string name;
  std::string value;
  SettingSource source = SettingSource::kDefault;
  std::string origin;  // "--coordinator", "ATOLL_COORDINATOR", "FILE:LINE", "".
};

class Settings {
 public:
  // What was given. `flags` holds only flags that are on the command line.
  struct Sources {
    std::map<std::string, std::string> flags;
    Environment environment;
    std::string profile_path;  // For messages; empty without a profile.
    std::string profile_text;  // TOML; each key the name of a setting.
  };

  // Resolves every setting.
  //
  // INVALID_ARGUMENT: the profile is no TOML, has an unknown key (the message
  // has its line and the nearest name) or a value that is not a string, number
  // or boolean; or a value does not parse (timeout, insecure).
  static absl::StatusOr<Settings> Resolve(const Sources& sources);

  // The value of `name`, which is one of SettingDefinitions().
  const std::string& Get(absl::string_view name) const;

  // All, in the order of SettingDefinitions().
  const std::vector<Setting>& all() const { return settings_; }

  // The settings "timeout" and "insecure".
  absl::Duration timeout() const { return timeout_; }
  bool insecure() const { return insecure_; }

 private:
  std::vector<Setting> settings_;
  absl::Duration timeout_;
  bool insecure_ = false;
};

// Where the profile is: ATOLL_PROFILE, else
// $XDG_CONFIG_HOME/atoll/profile.toml, else $HOME/.config/atoll/profile.toml,
// else empty.
std::string DefaultProfilePath(const Environment& environment);

}  // namespace atl::cli
