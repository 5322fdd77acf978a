// Judges the facts of a cluster, for its operator. Pure. Thread-safe.

#pragma once

#include <optional>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "cli/doctor/check.h"

namespace atl::cli {

// A service, as it looks from here.
struct ServiceFacts {
  std::string name;      // "server s1".
  std::string address;   // host:port
  absl::Status reached;  // Result of connecting to its port.
  bool alive = true;     // The coordinator says so.
  // The validity of its certificate, if it showed one.
  std::optional<absl::Time> certificate_begin, certificate_end;
  // Whether its port accepts a CA besides that of its own certificate, as
  // enrolled islands need it; nullopt: it does not say.
  std::optional<bool> admits_islands;
  std::optional<absl::Duration> clock_ahead;  // Its clock minus this machine's.
  std::string program_version;                // Empty: not known.
  std::optional<v1::ServerHealth> health;
};

// FAILED: the coordinator refuses a server or an island.
Check JudgePeers(const v1::GetClusterResponse& cluster);

// JudgeReached, unless the coordinator refuses all servers.
Check JudgeServers(const v1::GetClusterResponse& cluster,
                   const std::vector<ServiceFacts>& servers);

// FAILED: one is away or cannot be reached. WARN: the cluster has none. `id` is
// "servers" or "gates".
Check JudgeReached(absl::string_view id,
                   const std::vector<ServiceFacts>& services);

// FAILED: a coordinator or a server accepts no island CA, although there is a
// gate. WARN: the same without a gate, which such a coordinator refuses.
Check JudgeIslandCa(const std::vector<ServiceFacts>& listeners, bool has_gate);

// FAILED: a certificate has expired. WARN: less than a third of its life, or
// than 7 days, is left.
Check JudgeCertificates(const std::vector<ServiceFacts>& services,
                        absl::Time now);

// WARN: a clock differs from ours by more than 30 s. FAILED: by more than 5
// min.
Check JudgeClocks(const std::vector<ServiceFacts>& services);

// WARN: a program has another version than this one.
Check JudgeVersions(const std::vector<ServiceFacts>& services,
                    absl::string_view ours);

// FAILED: less than 2 % of a disk is free. WARN: less than 10 %, a sync takes
// more than 50 ms, or a server does not say.
Check JudgeDisks(const std::vector<ServiceFacts>& servers);

// WARN: the coordinator has a mirror, and no operator has a copy of its log's
// secret, which a restore from the mirror asks for.
Check JudgeSecret(const v1::GetClusterResponse& cluster);

// FAILED: a run or a shard has a fault. WARN: a run that has not ended makes no
// progress, a shard is blocked, or the mirror has an error or lacks a checkpoint
// for an hour.
Check JudgeRuns(const std::vector<v1::GetRunStateResponse>& runs,
                int64_t unseen_count, absl::Time now);

}  // namespace atl::cli
