// The files of `atoll ca`. Their names are those of cert-manager's Secrets,
// where it has one:
//
//   a CA           ca.crt, ca.key                  the root
//                  service-ca.crt, service-ca.key  signs what `ca issue` makes
//                  island-ca.crt, island-ca.key    signs what a gate makes
//   a certificate  tls.crt, tls.key                its owner's, with its chain
//                  ca.crt                          the CA that its owner trusts
//                  island-ca.crt, island-ca.key    for owners that need them
//
// A key and a token have the mode 0600, their directory 0700
// (base/io/private_directory.h). Each file appears whole.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::cli {

inline constexpr char kCaCertFile[] = "ca.crt";
inline constexpr char kCaKeyFile[] = "ca.key";
inline constexpr char kServiceCaCertFile[] = "service-ca.crt";
inline constexpr char kServiceCaKeyFile[] = "service-ca.key";
inline constexpr char kIslandCaCertFile[] = "island-ca.crt";
inline constexpr char kIslandCaKeyFile[] = "island-ca.key";
inline constexpr char kTlsCertFile[] = "tls.crt";
inline constexpr char kTlsKeyFile[] = "tls.key";

// DIRECTORY/NAME.
std::string FileIn(const std::string& directory, absl::string_view name);

bool HoldsFile(const std::string& directory, absl::string_view name);

// Errors as ReadFile of base/io/files.h; more than 1 MiB is RESOURCE_EXHAUSTED.
absl::StatusOr<std::string> ReadFileIn(const std::string& directory,
                                       absl::string_view name);

// Replaces the file, durably. Its mode, 0600 if its name ends in ".key",
// ".token", ".service" or ".consent" and else 0644, holds from the first byte.
absl::Status WriteFileIn(const std::string& directory, absl::string_view name,
                         absl::string_view text);

}  // namespace atl::cli
