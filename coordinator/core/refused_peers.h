// Servers and islands that the coordinator has refused, for operators.
//
// Any caller may be noted, under any name: both the memory and the lines for
// the log are bounded.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"

namespace atl::coordinator {

// The names that a caller gives itself.
struct PeerName {
  std::string role;    // "server" or "island".
  std::string name;    // server_id or island_id; empty: not recorded.
  std::string run_id;  // The island's run; empty for a server.
};

class RefusedPeers {
 public:
  static constexpr size_t kIslandsMax = 64;
  static constexpr size_t kServersMax = 1024;
  static constexpr size_t kListedMax = 64;
  // Time after which a peer that no longer asks is not listed, and makes room.
  static constexpr absl::Duration kListedFor = absl::Minutes(10);
  // Between two lines for the log about one peer.
  static constexpr absl::Duration kLogInterval = absl::Minutes(1);

  // Notes that `peer` was refused. Returns the line for the log; empty if there
  // was one within kLogInterval, or there is no room for the peer.
  std::string Note(const PeerName& peer, const v1::Fault& fault,
                   absl::Time now);
  // The peer was taken.
  void Forget(const std::string& role, const std::string& name);

  // Returns a run's fault of the first refused server for which `counts` is
  // true, however old; null without one. Valid until the next change.
  const v1::Fault* FindServer(
      const std::function<bool(const std::string& server_id)>& counts) const;

  // GetClusterResponse.refused_peers.
  void List(absl::Time now, v1::GetClusterResponse& response) const;

 private:
  struct Entry {
    std::string run_id;
    v1::Fault fault;
    v1::Fault run_fault;  // The same, with the peer's name.
    absl::Time time;
    absl::Time log_time = absl::InfinitePast();  // Not logged again before.
  };
  // True if there is room for one more peer of `role`.
  bool MakeRoom(const std::string& role, absl::Time now);

  std::map<std::pair<std::string, std::string>, Entry> peers_;  // (role, name)
};

}  // namespace atl::coordinator
