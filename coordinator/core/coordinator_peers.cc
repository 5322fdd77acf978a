// Checks of servers that register, and of the log positions that peers have
// seen.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/host_port/host_port.h"
#include "base/layout/ids.h"
#include "base/status/expected.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"

namespace atl::coordinator {
namespace {

// Longest id of a data directory that is stored.
constexpr size_t kDirectoryIdBytesMax = 64;

constexpr size_t kAddressBytesMax = 300;

// The end of a sentence about a log that is not the newest.
constexpr char kNewestOrRestore[] =
    "put the newest copy of its data directory in place, and start it. If that "
    "is lost, `atoll-coordinator restore` makes a log in its place, from the "
    "mirror or from an older copy";

absl::Status RefuseCluster(const v1::Fault& fault) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                absl::StrCat("this coordinator is ", fault.expected(),
                             ", the caller belongs to ", fault.found(),
                             ": it keeps what it has, and continues once its "
                             "own coordinator answers at this address"));
}

}  // namespace

absl::Status Coordinator::CheckAddress(const std::string& address) {
  if (address.size() <= kAddressBytesMax && ParseHostPort(address).ok()) {
    return absl::OkStatus();
  }
  return InvalidFields({{"address", "must be host:port"}});
}

void Coordinator::StartDamaged(absl::Time now, const absl::Status& damage) {
  v1::Fault fault;
  fault.set_code("LOG_DAMAGED");
  fault.set_expected(
      GetExpected(damage, "every synced batch of the coordinator's log"));
  fault.set_found(std::string(damage.message()));
  Freeze(fault,
         Refuse(absl::StatusCode::kFailedPrecondition, "LOG_DAMAGED",
                absl::StrCat("the coordinator's log has lost synced records (",
                             damage.message(),
                             "): it only reads. Stop it, ",
                             kNewestOrRestore)));
  BeginLife(now);
}

void Coordinator::Freeze(const v1::Fault& fault, const absl::Status& refusal) {
  refusal_ = refusal;
  for (auto& [id, run] : runs_) run->Freeze(fault, refusal);
  NoteAllRuns();
  NoteAllServers();
  reasons_.push_back(
      absl::StrCat("accepts nothing new: ", fault.code(), ": expected ",
                   fault.expected(), ", found ", fault.found()));
}

absl::Status Coordinator::CheckLog(const v1::LogPosition& seen,
                                   const PeerName& peer, absl::Time now) {
  RETURN_IF_ERROR(CheckPeer(seen, peer, now));
  return CheckWritable();
}

absl::Status Coordinator::CheckPeer(const v1::LogPosition& seen,
                                    const PeerName& peer, absl::Time now) {
  const std::optional<v1::Fault> fault = log_history_.Check(seen);
  if (!fault.has_value()) return absl::OkStatus();
  if (fault->code() == "OTHER_CLUSTER") {
    return RefusePeer(peer, *fault, now);
  }
  if (refusal_.ok()) {
    Freeze(*fault,
           Refuse(absl::StatusCode::kFailedPrecondition, "LOG_BEHIND",
                  absl::StrCat("the coordinator's log is an older copy: a peer "
                               "has seen ",
                               fault->expected(), ", the log has ",
                               fault->found(),
                               ". Stop the coordinator, ",
                               kNewestOrRestore)));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::RefusePeer(const PeerName& peer,
                                     const v1::Fault& fault, absl::Time now) {
  NoteRefusal(peer, fault, now);
  return RefuseCluster(fault);
}

absl::Status Coordinator::CheckCluster(const RunScope& scope) const {
  if (!scope.enrolled()) return absl::OkStatus();
  const std::optional<v1::Fault> fault =
      log_history_.CheckCluster(scope.cluster_id);
  return fault.has_value() ? RefuseCluster(*fault) : absl::OkStatus();
}

v1::LogPosition Coordinator::Position(const RunMachine* run) const {
  const bool has_records =
      !own_entries_.empty() || (run != nullptr && run->has_records());
  return log_history_.position(has_records ? 1 : 0);
}

bool Coordinator::HasShards(const std::string& server_id) const {
  for (const auto& [id, run] : runs_) {
    const auto& owners = run->state().server_ids();
    if (std::find(owners.begin(), owners.end(), server_id) != owners.end()) {
      return true;
    }
  }
  return false;
}

void Coordinator::NoteRefusal(const PeerName& peer, const v1::Fault& fault,
                              absl::Time now) {
  std::string line = refused_peers_.Note(peer, fault, now);
  if (!line.empty()) warnings_.push_back(std::move(line));
}

const v1::Fault* Coordinator::FindRefusal(const std::string& server_id) const {
  return refused_peers_.FindServer([&](const std::string& id) {
    if (!server_id.empty() && id != server_id) return false;
    const ServerInfo* const fit = FindServer(id);
    return fit == nullptr || !fit->alive;
  });
}

absl::Status Coordinator::CheckIdentity(
    const v1::RegisterServerRequest& request, absl::Time now) {
  const PeerName peer = {"server", request.server_id(), ""};
  const auto old = servers_.find(request.server_id());
  if (old == servers_.end()) return absl::OkStatus();
  const ServerInfo& known = old->second.info;
  // The first process wins, also one that has the directory of before.
  if (known.directory_lost) return absl::OkStatus();
  const auto refuse_stale = [&] {
    v1::Fault fault;
    fault.set_code("STALE_INCARNATION");
    fault.set_expected(absl::StrCat("incarnation ", known.incarnation, " at ",
                                    known.address));
    fault.set_found(absl::StrCat("incarnation ", request.incarnation(), " at ",
                                 request.address()));
    NoteRefusal(peer, fault, now);
    return Refuse(absl::StatusCode::kAborted, "STALE_INCARNATION",
                  absl::StrCat(fault.found(), " of server ",
                               request.server_id(), " is not the newest, ",
                               fault.expected()));
  };
  if (request.directory_id() == known.directory_id) {
    if (request.incarnation() < known.incarnation) return refuse_stale();
    // A process keeps its address: this is a copy of the directory.
    const bool is_copy = !known.directory_id.empty() &&
                         request.incarnation() == known.incarnation &&
                         request.address() != known.address;
    return is_copy ? refuse_stale() : absl::OkStatus();
  }
  const bool is_newer = request.incarnation() > known.incarnation;
  const bool is_needed = HasShards(request.server_id());
  if (known.directory_id.empty() && is_newer) {
    return absl::OkStatus();  // Its program was upgraded.
  }
  // Incarnations of two directories do not fence each other's processes.
  if (!is_needed && (is_newer || !known.alive)) return absl::OkStatus();
  if (known.directory_id.empty()) return refuse_stale();
  v1::Fault fault;
  fault.set_code("OTHER_DIRECTORY");
  fault.set_expected(absl::StrCat("data directory ", known.directory_id));
  fault.set_found(
      request.directory_id().empty()
          ? std::string("a data directory without an id")
          : absl::StrCat("data directory ", request.directory_id()));
  NoteRefusal(peer, fault, now);
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "OTHER_DIRECTORY",
      absl::StrCat(is_needed ? "runs have shards in " : "a live process has ",
                   fault.expected(), " of server ", request.server_id(),
                   ", and this process has ", fault.found(),
                   ": start it with its own --data-dir, or with another "
                   "--server-id; if its own is lost, `atoll server replace ",
                   request.server_id(), "` accepts this one"));
}

absl::StatusOr<v1::RegisterServerResponse> Coordinator::RegisterServer(
    const v1::RegisterServerRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckId("server_id", request.server_id()));
  RETURN_IF_ERROR(CheckAddress(request.address()));
  if (request.incarnation() < 1 || request.program_version().size() > 256) {
    return InvalidFields({{"incarnation",
                           "must be at least 1, and program_version at most "
                           "256 bytes"}});
  }
  if (request.directory_id().size() > kDirectoryIdBytesMax) {
    return InvalidFields({{"directory_id", "must be at most 64 bytes"}});
  }
  RETURN_IF_ERROR(CheckPeer(request.log_seen(),
                            {"server", request.server_id(), ""}, now));
  RETURN_IF_ERROR(CheckIdentity(request, now));
  const auto old = servers_.find(request.server_id());
  if (!refusal_.ok()) {
    // Readers find it at its present address, which only one that is alive has.
    if (old != servers_.end()) {
      old->second.info.address = request.address();
      old->second.info.alive = true;
    }
    return refusal_;
  }
  if (old == servers_.end() && servers_.size() >= kRegisteredServersMax) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_SERVERS",
                  absl::StrCat("the coordinator knows ", kRegisteredServersMax,
                               " servers, its maximum: start this one with the "
                               "--server-id of a server that is gone and has "
                               "no shard of a run"));
  }
  const bool is_other =
      old != servers_.end() &&
      old->second.info.directory_id != request.directory_id() &&
      !old->second.info.directory_id.empty();
  const bool restarted =
      old == servers_.end() || old->second.info.directory_lost ||
      old->second.info.incarnation != request.incarnation() ||
      old->second.info.directory_id != request.directory_id();
  const bool differs =
      restarted || old->second.info.address != request.address() ||
      old->second.info.program_version != request.program_version() ||
      old->second.info.features != request.features();
  if (differs) {
    storage::v1::Record record;
    storage::v1::ServerSet& set = *record.mutable_server_set();
    set.set_server_id(request.server_id());
    set.set_address(request.address());
    set.set_incarnation(request.incarnation());
    set.set_program_version(request.program_version());
    set.set_directory_id(request.directory_id());
    set.set_features(request.features());
    EmitOwn(std::move(record), now);
    reasons_.push_back(absl::StrCat("server ", request.server_id(),
                                    " registered at ", request.address()));
  }
  refused_peers_.Forget("server", request.server_id());
  Server& server = servers_[request.server_id()];
  server.info.alive = true;
  server.lease_end = now + options_.server_lease_duration;
  // An older copy of the directory can come with the same incarnation, and
  // counts its reports from the start. A late report from before is replaced by
  // the next one.
  server.report_seq = 0;
  server.reports = ReportJoiner();
  if (restarted) deleted_.Restart(request.server_id());
  changed_servers_.insert(request.server_id());
  if (is_other) {
    for (auto& [id, run] : runs_) {
      run->Step(event::MoveShards{request.server_id(), request.server_id()},
                now)
          .IgnoreError();
    }
  }
  TellRuns(request.server_id(), restarted, now);
  v1::RegisterServerResponse response;
  *response.mutable_lease_duration() = ToProto(options_.server_lease_duration);
  response.set_coordinator_epoch(coordinator_epoch_);
  *response.mutable_log() = Position(nullptr);
  response.set_coordinator_features(ProgramFeatures());
  return response;
}

absl::StatusOr<v1::ReplaceServerResponse> Coordinator::ReplaceServer(
    const v1::ReplaceServerRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckWritable());
  const std::string& server_id = request.server_id();
  const std::string& with = request.with_server_id();
  RETURN_IF_ERROR(CheckId("server_id", server_id));
  if (!with.empty()) RETURN_IF_ERROR(CheckId("with_server_id", with));
  if (with == server_id) {
    return InvalidFields({{"with_server_id",
                           "must be another server; leave it out if server_id "
                           "starts with another data directory"}});
  }
  const auto server = servers_.find(server_id);
  if (server == servers_.end()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_SERVER",
                  absl::StrCat("no server has registered as ", server_id));
  }
  v1::ReplaceServerResponse response;
  if (!with.empty()) {
    if (HasShards(server_id)) {
      RETURN_IF_ERROR(MoveShards(server_id, with, now));
      response.set_changed(true);
    }
  } else if (!server->second.info.alive &&
             !server->second.info.directory_lost && HasShards(server_id)) {
    const ServerInfo& info = server->second.info;
    storage::v1::Record record;
    storage::v1::ServerSet& set = *record.mutable_server_set();
    set.set_server_id(server_id);
    set.set_address(info.address);
    set.set_incarnation(info.incarnation);
    set.set_program_version(info.program_version);
    set.set_directory_id(info.directory_id);
    set.set_features(info.features);
    set.set_directory_lost(true);
    EmitOwn(std::move(record), now);
    changed_servers_.insert(server_id);
    reasons_.push_back(absl::StrCat(
        "server ", server_id, " may register with another data directory"));
    response.set_changed(true);
  }
  response.set_server_id(with.empty() ? server_id : with);
  const ServerInfo* const owner = FindServer(response.server_id());
  response.set_registered(owner != nullptr && owner->alive &&
                          !owner->directory_lost);
  for (const auto& [id, run] : runs_) {
    const RunState& state = run->state();
    if (state.state() == v1::RUN_STATE_CANCELLED) continue;
    for (size_t shard = 0; shard < state.server_ids().size(); ++shard) {
      if (state.server_ids()[shard] != response.server_id()) continue;
      const ObservedShard& seen = run->observed().shards[shard];
      const std::string& code = seen.report.fault_detail().code();
      v1::ReplacedRun& replaced = *response.add_runs();
      replaced.set_run_id(id);
      replaced.set_run_uid(state.run_uid());
      replaced.set_reported(seen.reported);
      replaced.set_lost(seen.reported &&
                        (code == "SHARD_BEHIND" || code == "DATA_LOSS"));
    }
  }
  return response;
}

absl::Status Coordinator::MoveShards(const std::string& from,
                                     const std::string& to, absl::Time now) {
  if (servers_.at(from).info.alive) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "SERVER_ALIVE",
                  absl::StrCat("server ", from,
                               " is alive: stop it before its shards go to ",
                               to));
  }
  const ServerInfo* const target = FindServer(to);
  if (target == nullptr || !target->alive) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "SERVER_AWAY",
                  absl::StrCat("server ", to,
                               " is not registered, or away: start it"));
  }
  for (auto& [id, run] : runs_) {
    RETURN_IF_ERROR(run->Step(event::MoveShards{from, to}, now).status());
  }
  changed_servers_.insert({from, to});
  return absl::OkStatus();
}

absl::Status Coordinator::CheckServer(const std::string& server_id,
                                      int64_t incarnation,
                                      const std::string& directory_id) const {
  RETURN_IF_ERROR(CheckWritable());
  const auto server = servers_.find(server_id);
  // A process with another directory learns more from RegisterServer. The
  // number of its starts says nothing here.
  const bool is_other = server != servers_.end() && !directory_id.empty() &&
                        !server->second.info.directory_id.empty() &&
                        server->second.info.directory_id != directory_id;
  if (server == servers_.end() || is_other ||
      server->second.info.directory_lost ||
      incarnation > server->second.info.incarnation) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_REGISTERED",
                  absl::StrCat("this life of server ", server_id.substr(0, 64),
                               " is not registered: RegisterServer first"));
  }
  if (incarnation < server->second.info.incarnation) {
    return Refuse(
        absl::StatusCode::kAborted, "STALE_INCARNATION",
        absl::StrCat("incarnation ", incarnation, " of server ", server_id,
                     " is not the newest, ", server->second.info.incarnation));
  }
  return absl::OkStatus();
}

void Coordinator::NoteHealth(const std::string& server_id,
                             const v1::ServerHealth& health,
                             absl::Time clock) {
  const auto server = servers_.find(server_id);
  if (server == servers_.end()) return;
  server->second.health = health;
  server->second.clock_ahead = FromProto(health.time()) - clock;
}

v1::GetClusterResponse Coordinator::DescribeCluster(absl::Time now) const {
  v1::GetClusterResponse response;
  for (const auto& [id, server] : servers_) {
    v1::ClusterServer& described = *response.add_servers();
    described.set_server_id(id);
    described.set_address(server.info.address);
    described.set_alive(server.info.alive);
    described.set_program_version(server.info.program_version);
    if (!server.health.has_value()) continue;
    *described.mutable_health() = *server.health;
    *described.mutable_clock_ahead_duration() = ToProto(server.clock_ahead);
  }
  for (const auto& [address, gate] : gates_) {
    if (gate.end <= now) continue;
    v1::ClusterGate& described = *response.add_gates();
    described.set_address(address);
    described.set_pin(gate.pin);
  }
  refused_peers_.List(now, response);
  return response;
}

}  // namespace atl::coordinator
