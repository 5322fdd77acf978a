// The files of `atoll ca`. Their names are those of cert-manager's Secrets,
// where it has one:
//
//   a CA           root.crt, root.key              the root; until 0.1 it was
//                                                  called ca.crt, ca.key
//                  service-ca.crt, service-ca.key  signs what `ca issue` makes
//                  island-ca.crt, island-ca.key    signs what a gate makes
//                  issued.txt                      what `ca issue` made
//                  crl.pem                         what `ca revoke` revoked
//   a certificate  tls.crt, tls.key                its owner's, with its chain
//                  ca.crt                          the CA that its owner trusts
//                  island-ca.crt, island-ca.key    for owners that need them
//                  crl.pem                         a copy of the CA's
//
// A key and a token have the mode 0600, their directory 0700
// (base/io/private_directory.h). Each file appears whole.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::cli {

inline constexpr char kRootCertFile[] = "root.crt";
inline constexpr char kRootKeyFile[] = "root.key";
inline constexpr char kCaCertFile[] = "ca.crt";
inline constexpr char kCaKeyFile[] = "ca.key";
inline constexpr char kServiceCaCertFile[] = "service-ca.crt";
inline constexpr char kServiceCaKeyFile[] = "service-ca.key";
inline constexpr char kIslandCaCertFile[] = "island-ca.crt";
inline constexpr char kIslandCaKeyFile[] = "island-ca.key";
inline constexpr char kIssuedFile[] = "issued.txt";
inline constexpr char kCrlFile[] = "crl.pem";
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

// Adds `text` at the file's end, durably; makes the file if it is missing.
absl::Status AppendToFileIn(const std::string& directory,
                            absl::string_view name, absl::string_view text);

}  // namespace atl::cli
