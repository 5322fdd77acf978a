// What keeps strangers out where the processes of an island meet: a secret that
// each proves to each (worker/collective/tcp), and whether the bytes between
// them are encrypted.

#ifndef WORKER_ISLAND_GROUP_RENDEZVOUS_H_
#define WORKER_ISLAND_GROUP_RENDEZVOUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::worker {

struct RendezvousOptions {
  std::string run_id;
  std::string island_id;
  std::string address;  // HOST:PORT.
  // A file whose bytes all processes have; empty: none.
  std::string secret_path;
  // The island's TLS key, which is on all of its machines; empty: none.
  std::string tls_key_path;
  // Where this machine keeps a secret of its own for islands that do not leave
  // it; made if it is not there.
  std::string machine_secret_path;
  // --insecure: in the clear off loopback too, and with anybody if there is no
  // secret.
  bool insecure = false;
};

struct Rendezvous {
  // Of the run and the island, so that others with the same file do not meet
  // them; not empty.
  std::string secret;
  bool in_the_clear = false;  // Loopback, or asked for.
};

// The secret is that of the first that there is: secret_path, tls_key_path, on
// loopback machine_secret_path.
//
// INVALID_ARGUMENT: the address is none, or not on this machine and there is no
// secret; the file is too short to be one, or others may read this machine's.
// The message says what to do. NOT_FOUND, ...: a file cannot be read or made.
absl::StatusOr<Rendezvous> MakeRendezvous(const RendezvousOptions& options);

}  // namespace atl::worker

#endif  // WORKER_ISLAND_GROUP_RENDEZVOUS_H_
