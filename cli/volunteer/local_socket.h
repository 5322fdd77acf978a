// The connection from `atoll local` to a running `atoll join`: a unix socket in
// a directory that only its user can open. A call is one packet of JSON, and so
// is its answer; both have at most 64 KiB.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"
#include "base/net/packet_socket.h"
#include "cli/output/output.h"

namespace atl::cli {

// The directory of the sockets of a user's islands.
std::string LocalDirectory(absl::string_view state_directory);

// The name of an island's socket: the same for every join that would continue
// from the same local checkpoint, in `directory`.
std::string LocalName(absl::string_view directory,
                      absl::string_view run_id, absl::string_view island_id);

// Answers a request. Called on a thread of the server, one call at a time.
using LocalHandler = std::function<absl::StatusOr<Json>(const Json& request)>;

class LocalServer {
 public:
  // Listens at DIRECTORY/NAME, of any length; makes the directory. Replaces the
  // socket of a dead process.
  // ALREADY_EXISTS: another process listens there. FAILED_PRECONDITION: other
  // users may write to the directory.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(
      const std::string& directory, const std::string& name,
      LocalHandler handler);
  // Waits for a call that is being answered.
  ~LocalServer();

 private:
  LocalServer(UniqueFd directory, UniqueFd waker, LocalHandler handler)
      : directory_(std::move(directory)),
        waker_(std::move(waker)),
        handler_(std::move(handler)) {}

  // Waits until `fd` can be read. CANCELLED: the server stops.
  absl::Status WaitFor(int fd, absl::Duration timeout) const;
  void Run();
  void Answer(net::PacketSocket caller) const;

  const UniqueFd directory_;
  const UniqueFd waker_;
  const LocalHandler handler_;
  std::unique_ptr<net::PacketListener> listener_;
  std::thread thread_;
};

// Calls the server at DIRECTORY/NAME. Errors: the handler's.
// NOT_FOUND: no process listens there. DEADLINE_EXCEEDED: it does not answer
// for 5 s.
absl::StatusOr<Json> CallLocal(const std::string& directory,
                               const std::string& name, const Json& request);

// The names in the directory, also of sockets of dead processes, sorted; at
// most 1000. Empty if there is no directory.
std::vector<std::string> ListLocal(const std::string& directory);

}  // namespace atl::cli
