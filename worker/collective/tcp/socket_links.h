// RemoteLinks over one connection to each rank of other processes. No thread:
// the caller of Run moves the bytes, in both directions at once, directly
// between the connections and the buffers of the call.

#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/unique_fd.h"
#include "worker/collective/remote.h"
#include "worker/collective/tcp/connection.h"

namespace atl::collective {

class SocketLinks : public RemoteLinks {
 public:
  // `connections[peer]` leads to that rank; invalid for ranks of this process.
  // `group` and `rank` are for messages.
  static absl::StatusOr<std::unique_ptr<RemoteLinks>> Create(
      std::string group, int rank, std::vector<Connection> connections);

  absl::Status Run(absl::Span<const Send> sends,
                   absl::Span<const Receive> receives, Check check,
                   absl::FunctionRef<absl::Status()> interrupted,
                   absl::Time deadline) override;
  void Wake() override { SetWaker(waker_.get()); }

 private:
  // Bytes left of a send or a receive: first header, then data.
  struct Progress {
    int64_t header_left = 0;
    int64_t data_left = 0;
    bool done() const { return header_left == 0 && data_left == 0; }
  };

  SocketLinks(std::string group, int rank,
              std::vector<Connection> connections, UniqueFd waker)
      : group_(std::move(group)),
        rank_(rank),
        connections_(std::move(connections)),
        waker_(std::move(waker)),
        headers_(connections_.size()) {}

  // Moves as many bytes as it can; true if any moved.
  absl::StatusOr<bool> Push(absl::Span<const Send> sends);
  absl::StatusOr<bool> Pull(absl::Span<const Receive> receives, Check check);
  absl::StatusOr<bool> PullOne(const Receive& receive, Progress& progress,
                               Check check);
  void ListenFor(int peer, short events);
  absl::Status Await(absl::Span<const Send> sends,
                     absl::Span<const Receive> receives,
                     absl::FunctionRef<absl::Status()> interrupted,
                     absl::Time deadline);
  absl::Status Closed(int peer) const;

  const std::string group_;
  const int rank_;
  std::vector<Connection> connections_;
  const UniqueFd waker_;

  // State of the current Run; reused.
  std::vector<Progress> sending_;
  std::vector<Progress> receiving_;
  std::vector<bool> busy_;           // By peer, within one pass.
  std::vector<CallHeader> headers_;  // Arriving, by peer.
  std::vector<pollfd> polled_;
};

}  // namespace atl::collective
