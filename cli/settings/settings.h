// Settings of the `atoll` command and the origin of each.
//
// Precedence: flag, then environment (ATOLL_*), then profile file, then
// default. (CLI11's own support is not used: there a file beats the
// environment.)
//
// "tls_dir" stands for the three files of TLS. A file's own setting wins if its
// source does, or is the same.
//
// The proxy has a fourth source, HTTPS_PROXY, between profile and default, and
// only then hosts that are dialled directly, NO_PROXY. Other programs may
// understand one that we do not: it is an error only when a host is dialled.
//
// Pure: main passes the environment as a map and the profile as text.
// Thread-compatible.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/proxy.h"

namespace atl::cli {

// Environment variables by name.
using Environment = std::map<std::string, std::string>;

enum class SettingSource { kDefault, kProfile, kEnvironment, kFlag };

// "default", "profile", "environment", "flag".
absl::string_view SettingSourceName(SettingSource source);

struct SettingDefinition {
  std::string name;           // "tls_ca"; the flag is --tls-ca, the variable
                              // ATOLL_TLS_CA.
  std::string default_value;  // Empty for none.
  std::string help;
  bool is_path = false;    // In a profile: relative to its directory.
  bool is_switch = false;  // "true" or "false", also written 1 or 0; the flag
                           // has no value.
  bool is_list = false;    // Values with commas between; the flag may be repeated.
};

// All settings, in the order of `atoll settings`.
const std::vector<SettingDefinition>& SettingDefinitions();

// A resolved setting.
struct Setting {
  std::string name;
  std::string value;
  SettingSource source = SettingSource::kDefault;
  std::string origin;  // "--coordinator", "ATOLL_COORDINATOR", "FILE:LINE", "".
};

class Settings {
 public:
  // The inputs. `flags` holds only flags on the command line.
  struct Sources {
    std::map<std::string, std::string> flags;
    Environment environment;
    std::string profile_path;  // For messages; empty without a profile.
    std::string profile_text;  // TOML; each key is a setting's name.
  };

  // Resolves every setting.
  //
  // INVALID_ARGUMENT: the profile is not TOML, has an unknown key (the message
  // has its line and the nearest name), or a value that is not a string, number
  // or boolean; or another setting does not parse.
  static absl::StatusOr<Settings> Resolve(const Sources& sources);

  // The value of `name`, which must be one of SettingDefinitions(). That of
  // "proxy" has no password.
  const std::string& Get(absl::string_view name) const;

  // All settings, in the order of SettingDefinitions().
  const std::vector<Setting>& all() const { return settings_; }

  // The settings "timeout", "insecure", "proxy", "allow_data_host" and
  // "data_credentials".
  absl::Duration timeout() const { return timeout_; }
  bool insecure() const { return insecure_; }
  const Proxy& proxy() const { return proxy_; }
  std::vector<std::string> allowed_data_hosts() const;

  // Drops the TLS files that the environment or the profile names, for a
  // command whose programs have no TLS.
  //
  // INVALID_ARGUMENT (a usage error): a flag names them. Nothing is dropped.
  absl::Status DropTls();

  bool has_data_credentials() const { return Get("data_credentials") == "true"; }

 private:
  absl::Status ResolveProxy(const Environment& environment);
  // Takes the files of "tls_dir" for those whose own settings have an inferior
  // source or none.
  void TakeTlsDirectory();

  std::vector<Setting> settings_;
  absl::Duration timeout_;
  bool insecure_ = false;
  Proxy proxy_;
};

// The value of a variable; empty: it is not set.
std::string GetVariable(const Environment& environment,
                        const std::string& name);

// The path of the profile: ATOLL_PROFILE, else
// $XDG_CONFIG_HOME/atoll/profile.toml, else $HOME/.config/atoll/profile.toml,
// else empty.
std::string DefaultProfilePath(const Environment& environment);

// The folder of this user's configuration: $XDG_CONFIG_HOME/atoll, else
// $HOME/.config/atoll, else empty.
std::string ConfigDirectory(const Environment& environment);

}  // namespace atl::cli
