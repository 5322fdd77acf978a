// Secures the rendezvous of an island's processes: the secret that each proves
// to each (worker/collective/tcp), and whether bytes are encrypted.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::worker {

struct RendezvousOptions {
  std::string run_id;
  std::string island_id;
  std::string address;  // HOST:PORT.
  // A file that all processes have; empty: none.
  std::string secret_path;
  // The island's TLS key, present on all its machines; empty: none.
  std::string tls_key_path;
  // This machine's own secret, for islands on loopback; created if missing.
  std::string machine_secret_path;
  // --insecure: plain text anywhere; without a secret any process may join.
  bool insecure = false;
};

struct Rendezvous {
  // Depends on the run and the island, which keeps islands apart; not empty.
  std::string secret;
  bool in_the_clear = false;  // Loopback, or requested.
};

// Uses the first secret that exists: secret_path, tls_key_path, on loopback
// machine_secret_path.
//
// INVALID_ARGUMENT: invalid address; an address off this machine without a
// secret; a secret that is too short, or that other users may access. The
// message gives a remedy. NOT_FOUND, ...: a file cannot be read or created.
absl::StatusOr<Rendezvous> MakeRendezvous(const RendezvousOptions& options);

}  // namespace atl::worker
