// What a run's machine knows beside its durable state: reports, leases, timers.
// All of it is rebuilt after a restart, from reports and time.
//
// Plain values; no behaviour. Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_STATE_OBSERVATIONS_H_
#define COORDINATOR_CORE_STATE_OBSERVATIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// Islands that are named where a round waits for more.
inline constexpr size_t kAwaitedNamedMax = 5;

// A server as the registry has it.
struct ServerInfo {
  std::string server_id;
  std::string address;
  int64_t incarnation = 0;
  std::string program_version;
  bool alive = false;  // Its lease is whole.
};

// Who asks for a server.
class ServerDirectory {
 public:
  virtual ~ServerDirectory() = default;
  // nullptr if it never registered.
  virtual const ServerInfo* FindServer(const std::string& server_id) const = 0;
  // Ids of the servers whose leases are whole, those that hold the fewest
  // shards first, then by id.
  virtual std::vector<std::string> AliveServers() const = 0;
};

// A contribution of the run's present epoch: fragment, slot, seq.
using ContributionPlace = std::tuple<int32_t, int32_t, int64_t>;

inline ContributionPlace ToPlace(const v1::ContributionKey& key) {
  return {key.fragment(), key.slot(), key.seq()};
}

// The newest report of a shard by its server's present life.
struct ObservedShard {
  bool reported = false;
  v1::ShardReport report;
  // Undecided contributions that it has had, over its server's lives; some may
  // be lost now (recalls.h).
  std::map<ContributionPlace, v1::ContributionInfo> had;
};

// A contribution that shards had and have lost before its COMMIT.
struct Recall {
  v1::ContributionKey key;
  std::set<int32_t> shards;                   // That lack it.
  absl::Time since = absl::InfiniteFuture();  // When the first was seen to.
};

// What is known of a member beside its record.
struct ObservedMember {
  absl::Time lease_end = absl::InfiniteFuture();
  absl::Time last_heard = absl::InfinitePast();
  std::optional<v1::ReportProgressRequest> progress;
  // Mean loss since its last contribution was due, for the round's history.
  double loss_sum = 0;
  int64_t loss_step_count = 0;
};

// Whom one fragment's open round waits for, as DecideSeal last found it.
struct RoundWait {
  int received_count = 0;
  int awaited_count = 0;
  std::vector<int32_t> awaited;      // Slots, the first kAwaitedNamedMax.
  std::set<int32_t> received_slots;  // Received now, or before a loss.
  // When the newest of them was first received, or the run was resumed since;
  // never if neither was.
  absl::Time received_time = absl::InfinitePast();
};

// Timers of one fragment's open round.
struct RoundTimers {
  absl::Time deadline_start = absl::InfinitePast();
  absl::Time quorum_time = absl::InfiniteFuture();  // When it was met.
  RoundWait wait;
};

struct Observations {
  std::vector<ObservedShard> shards;           // By shard, once placed.
  std::vector<ObservedMember> members;         // By slot.
  std::vector<RoundTimers> timers;             // By fragment.
  std::map<std::string, absl::Time> pin_ends;  // Leases, by pin_id.
  std::map<ContributionPlace, Recall> recalls;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_STATE_OBSERVATIONS_H_
