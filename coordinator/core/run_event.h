// What can happen to a run, from outside: the argument of RunMachine::Step.
//
// Plain values; messages are referred to and must outlive the call. Pure.

#ifndef COORDINATOR_CORE_RUN_EVENT_H_
#define COORDINATOR_CORE_RUN_EVENT_H_

#include <cstdint>
#include <string>
#include <variant>

#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// Who an island says it is.
struct IslandCredentials {
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session_secret;  // 32 bytes.
};

namespace event {

// --- The first of a life
// ------------------------------------------------------

// A new run is recorded. Requires: ids and spec were validated.
struct Create {
  std::string run_id;
  const v1::RunSpec& spec;
};
// All of the log was taken in: leases are whole.
struct Recovered {};

// --- Islands: errors as island_service.proto has them
// -------------------------

// The answer has no plan; the caller adds it.
struct Join {
  const v1::JoinRequest& request;
  std::string session_secret;  // 32 random bytes that the caller has made.
};
struct Heartbeat {
  IslandCredentials island;
};
struct Ready {
  IslandCredentials island;
  int64_t commit_seq = 0;
};
struct Progress {
  IslandCredentials island;
  const v1::ReportProgressRequest& request;
};
struct Leave {
  IslandCredentials island;
};

// --- Operators: errors as run_service.proto has them
// --------------------------

struct Pause {};
struct Resume {};
struct Cancel {};
struct RemoveIsland {
  std::string island_id;
  bool readmit = false;
};
struct Export {
  const v1::ExportCheckpointRequest& request;
};

// --- Servers
// ------------------------------------------------------------------

// A shard's report, by the present life of the server that owns it; others are
// ignored.
struct ShardReported {
  std::string server_id;
  v1::ShardReport report;
};
// A server registered, came back or went away. `restarted`: what its shards
// reported before no longer holds.
struct ServerChanged {
  std::string server_id;
  bool restarted = false;
};

// --- Time
// ---------------------------------------------------------------------

// Nothing happened, and something may be due.
struct Tick {};

}  // namespace event

using RunEvent =
    std::variant<event::Create, event::Recovered, event::Join, event::Heartbeat,
                 event::Ready, event::Progress, event::Leave, event::Pause,
                 event::Resume, event::Cancel, event::RemoveIsland,
                 event::Export, event::ShardReported, event::ServerChanged,
                 event::Tick>;

// What the caller is answered, beside the status.
struct RunAnswer {
  v1::JoinResponse joined;                // Of Join.
  v1::ExportCheckpointResponse exported;  // Of Export.
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_RUN_EVENT_H_
