#include "coordinator/service/plan_publisher.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

// Streams whose receivers are gone are dropped this often.
constexpr absl::Duration kSweepPeriod = absl::Milliseconds(250);

template <typename Stream>
void DropDone(std::list<Stream>& streams) {
  streams.remove_if([](const Stream& stream) { return stream.sink->done(); });
}

// True if plans went out at `sent`, within the gap before `now`. A clock that was
// set back holds up none.
bool IsHeld(absl::Time sent, absl::Time now) {
  return now >= sent && now < sent + PlanPublisher::kGap;
}

// Encodes the values that all own parts depend on.
std::string EncodeRounds(const SharedPart& shared) {
  std::string rounds = shared.rounds.SerializeAsString();
  for (const int32_t slot : shared.evaluators) {
    absl::StrAppend(&rounds, " ", slot);
  }
  return rounds;
}

}  // namespace

absl::Status PlanPublisher::Check(const Coordinator& coordinator,
                                  const std::string& run_id,
                                  const IslandCredentials& island,
                                  const RunMachine*& run) {
  const auto found = coordinator.runs().find(run_id);
  if (found == coordinator.runs().end()) {
    // The newest log may have it.
    RETURN_IF_ERROR(coordinator.CheckWritable());
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_RUN",
                  absl::StrCat("there is no run ", run_id));
  }
  run = found->second.get();
  return run->CheckIsland(island);
}

void PlanPublisher::Refresh(const Coordinator& coordinator,
                            const RunMachine& machine, Run& run) {
  run.due.shared = false;
  SharedPart shared =
      EncodeSharedPart(machine.state(), machine.observed(), coordinator);
  std::string rounds = EncodeRounds(shared);
  if (run.rounds != rounds) run.due.all_slots = true;
  run.rounds = std::move(rounds);
  if (run.shared.bytes == nullptr || *run.shared.bytes != *shared.bytes) {
    ++run.shared_number;
    run.due.all_slots = true;
  } else {
    shared.bytes = std::move(run.shared.bytes);
  }
  run.shared = std::move(shared);
  if (run.due.all_slots) run.left_count = run.streams.size();
}

void PlanPublisher::Offer(const Coordinator& coordinator,
                          const RunMachine& machine, const Run& run,
                          IslandStream& stream, bool is_first) {
  const auto encode = [&](bool has_sealed) {
    return EncodeOwnPart(run.shared, machine.state(), machine.observed(),
                         stream.slot, has_sealed);
  };
  std::string own = encode(/*has_sealed=*/true);
  const codec::Sha256Digest digest = codec::ComputeSha256(own);
  if (!is_first && stream.shared_number == run.shared_number &&
      stream.own == digest) {
    return;
  }
  if (!run.shared.sealed.empty()) own = encode(/*has_sealed=*/false);
  stream.shared_number = run.shared_number;
  stream.own = digest;
  stream.sink->Offer({EncodeHead(coordinator.IslandPlanHead(machine)),
                      run.shared.bytes, std::move(own)});
}

void PlanPublisher::AddIsland(const Coordinator& coordinator,
                              const std::string& run_id,
                              const IslandCredentials& island,
                              std::shared_ptr<IslandSink> sink) {
  const RunMachine* machine = nullptr;
  if (absl::Status status = Check(coordinator, run_id, island, machine);
      !status.ok()) {
    return sink->End(std::move(status));
  }
  Run& run = runs_[run_id];
  MakeRoom(run.streams, bounds_.a_caller, [&](const IslandStream& stream) {
    return stream.island.island_id == island.island_id;
  });
  const auto count = [&] {
    size_t all_count = 0;
    for (const auto& [id, other] : runs_) all_count += other.streams.size();
    return CheckRoom(bounds_.islands, all_count, run.streams.size(), run_id);
  };
  if (!count().ok()) DropDoneIslands();
  if (absl::Status room = count(); !room.ok()) {
    ended_.emplace_back(run_id, island);
    if (run.streams.empty()) runs_.erase(run_id);
    return sink->End(std::move(room));
  }
  if (run.shared.bytes == nullptr || run.due.shared) {
    Refresh(coordinator, *machine, run);
  }
  if (run.streams.empty()) run.due = {};
  // A change that other streams lack stays due.
  if (run.due.for_islands()) {
    islands_due_ = true;
    next_send_ = std::min(next_send_, run.sent + kGap);
  }
  IslandStream stream = {island, std::move(sink)};
  stream.slot =
      machine->state().FindMember(island.island_id)->record.slot();
  Offer(coordinator, *machine, run, stream, /*is_first=*/true);
  if (machine->state().ended()) {
    stream.sink->End(absl::OkStatus());
    if (run.streams.empty()) runs_.erase(run_id);
    return;
  }
  run.streams.push_back(std::move(stream));
}

void PlanPublisher::AddServer(const Coordinator& coordinator,
                              const std::string& server_id,
                              int64_t incarnation,
                              const std::string& directory_id,
                              uint64_t features,
                              std::shared_ptr<ServerSink> sink,
                              absl::Time now) {
  absl::Status status =
      coordinator.CheckServer(server_id, incarnation, directory_id);
  MakeRoom(servers_, bounds_.a_caller, [&](const ServerStream& stream) {
    return stream.server_id == server_id;
  });
  if (status.ok() && servers_.size() >= bounds_.servers) {
    DropDone(servers_);
    if (servers_.size() >= bounds_.servers) {
      status = TooManyStreams(bounds_.servers, "");
    }
  }
  if (!status.ok()) return sink->End(std::move(status));
  ServerStream& stream = servers_.emplace_back();
  stream.server_id = server_id;
  stream.incarnation = incarnation;
  stream.directory_id = directory_id;
  stream.takes_changes = (features & kPlansOfChangedRuns) != 0;
  stream.takes_parts =
      stream.takes_changes && (features & kPlansOfChangedParts) != 0;
  stream.sink = std::move(sink);
  Offer(coordinator, stream, now);
}

void PlanPublisher::EndInvalid(const Coordinator& coordinator,
                               const std::string& run_id,
                               const PlanChange& change, Run& run) {
  run.streams.remove_if([&](const IslandStream& stream) {
    if (!change.Concerns(stream.slot)) return false;
    const RunMachine* machine = nullptr;
    absl::Status status = Check(coordinator, run_id, stream.island, machine);
    if (status.ok()) return false;
    stream.sink->End(std::move(status));
    NoteEnded(run_id, stream);
    return true;
  });
}

void PlanPublisher::DropDoneIslands() {
  for (auto& [run_id, run] : runs_) {
    run.streams.remove_if([&](const IslandStream& stream) {
      if (!stream.sink->done()) return false;
      NoteEnded(run_id, stream);
      return true;
    });
  }
}

std::vector<std::pair<std::string, IslandCredentials>>
PlanPublisher::TakeEnded() {
  std::vector<std::pair<std::string, IslandCredentials>> ended =
      std::exchange(ended_, {});
  std::erase_if(ended, [&](const auto& one) {
    const auto run = runs_.find(one.first);
    return run != runs_.end() &&
           std::any_of(run->second.streams.begin(), run->second.streams.end(),
                       [&](const IslandStream& stream) {
                         return stream.island.island_id ==
                                    one.second.island_id &&
                                stream.island.island_epoch ==
                                    one.second.island_epoch;
                       });
  });
  return ended;
}

std::vector<std::pair<std::string, IslandCredentials>>
PlanPublisher::ListIslands() const {
  std::vector<std::pair<std::string, IslandCredentials>> islands;
  for (const auto& [run_id, run] : runs_) {
    for (const IslandStream& stream : run.streams) {
      islands.emplace_back(run_id, stream.island);
    }
  }
  return islands;
}

void PlanPublisher::Note(const Coordinator& coordinator,
                         const Effects& effects) {
  // Another run may have the id by now, and these streams are not of it.
  for (const std::string& id : effects.batch.deleted_runs) {
    server_marks_.erase(id);
    const auto run = runs_.find(id);
    if (run == runs_.end()) continue;
    for (const IslandStream& stream : run->second.streams) {
      stream.sink->End(Refuse(absl::StatusCode::kNotFound, "NO_SUCH_RUN",
                              absl::StrCat("run ", id, " was deleted")));
    }
    runs_.erase(run);
  }
  for (const auto& [id, change] : effects.plan_changes) {
    if (change.servers) {
      servers_due_ = true;
      NoteServers(id, change, effects.plan_revision);
    }
    const auto run = runs_.find(id);
    if (run == runs_.end() || !change.for_islands()) continue;
    EndInvalid(coordinator, id, change, run->second);
    run->second.due.Add(change);
    run->second.left_count = run->second.streams.size();
    islands_due_ = true;
  }
  if (!effects.changed_servers.empty()) {
    servers_due_ = true;
    servers_.remove_if([&](const ServerStream& stream) {
      if (!effects.changed_servers.contains(stream.server_id)) return false;
      const absl::Status status = coordinator.CheckServer(
          stream.server_id, stream.incarnation, stream.directory_id);
      if (status.ok()) return false;
      stream.sink->End(status);
      return true;
    });
  }
}

void PlanPublisher::NoteServers(const std::string& run_id,
                                const PlanChange& change, int64_t revision) {
  ServerMarksOfRun& run = server_marks_[run_id];
  run.any = revision;
  if (change.all_members) run.all_members = revision;
  if (change.names) run.names = revision;
  for (const int32_t slot : change.members) {
    const auto at = static_cast<size_t>(slot);
    if (run.members.size() <= at) run.members.resize(at + 1);
    run.members[at] = revision;
  }
}

ServerMarks PlanPublisher::ListMarks(const ServerMarksOfRun& run,
                                     int64_t revision) {
  ServerMarks marks;
  marks.all_members = run.all_members > revision;
  marks.names = run.names > revision;
  for (size_t slot = 0; slot < run.members.size(); ++slot) {
    if (run.members[slot] > revision) {
      marks.members.push_back(static_cast<int32_t>(slot));
    }
  }
  return marks;
}

void PlanPublisher::NoteAll(const Coordinator& coordinator) {
  for (auto& [id, run] : runs_) {
    run.due = ChangeOfAll();
    islands_due_ = true;
    EndInvalid(coordinator, id, run.due, run);
    run.left_count = run.streams.size();
    run.shared = {};
    run.sent = absl::InfinitePast();
  }
  servers_due_ = true;
  server_marks_.clear();
  servers_.remove_if([&](ServerStream& stream) {
    stream.revision = -1;
    stream.given.clear();
    stream.sent = absl::InfinitePast();
    const absl::Status status = coordinator.CheckServer(
        stream.server_id, stream.incarnation, stream.directory_id);
    if (status.ok()) return false;
    stream.sink->End(status);
    return true;
  });
}

void PlanPublisher::SendRun(const Coordinator& coordinator,
                            const std::string& run_id, Run& run,
                            absl::Time now) {
  const RunMachine& machine = *coordinator.runs().at(run_id);
  if (run.due.shared) Refresh(coordinator, machine, run);
  const bool is_ended = machine.state().ended();
  run.left_count = std::min(run.left_count, run.streams.size());
  absl::Time next = now;
  for (size_t sent = 0; run.left_count > 0 && sent < bounds_.slice;
       --run.left_count) {
    const auto stream = run.streams.begin();
    if (stream->sink->done()) {
      NoteEnded(run_id, *stream);
      run.streams.erase(stream);
      continue;
    }
    if (run.due.Concerns(stream->slot) ||
        stream->shared_number != run.shared_number) {
      if (!is_ended && IsHeld(stream->sent, now)) {
        next = stream->sent + kGap;
        break;
      }
      Offer(coordinator, machine, run, *stream, /*is_first=*/false);
      run.sent = now;
      stream->sent = now;
      ++sent;
    }
    if (is_ended) {
      stream->sink->End(absl::OkStatus());
      run.streams.erase(stream);
    } else {
      run.streams.splice(run.streams.end(), run.streams, stream);
    }
  }
  run.is_begun = run.left_count > 0;
  if (run.is_begun) {
    islands_due_ = true;
    next_send_ = std::min(next_send_, next);
  } else {
    run.due = {};
  }
}

void PlanPublisher::Send(const Coordinator& coordinator, absl::Time now) {
  next_send_ = absl::InfiniteFuture();
  if (now >= next_sweep_ || next_sweep_ > now + kSweepPeriod) {
    DropDoneIslands();
    DropDone(servers_);
    next_sweep_ = now + kSweepPeriod;
    islands_due_ = true;
  }
  std::vector<const RunMachine*> told;
  if (std::exchange(islands_due_, false)) told = SendIslands(coordinator, now);
  if (std::exchange(servers_due_, false)) SendServers(coordinator, told, now);
}

std::vector<const RunMachine*> PlanPublisher::SendIslands(
    const Coordinator& coordinator, absl::Time now) {
  std::vector<const RunMachine*> told;
  for (auto entry = runs_.begin(); entry != runs_.end();) {
    auto& [run_id, run] = *entry;
    if (!run.streams.empty() && run.due.for_islands()) {
      if (!run.is_begun && IsHeld(run.sent, now) &&
          !coordinator.runs().at(run_id)->state().ended()) {
        islands_due_ = true;
        next_send_ = std::min(next_send_, run.sent + kGap);
      } else {
        told.push_back(coordinator.runs().at(run_id).get());
        SendRun(coordinator, run_id, run, now);
      }
    }
    entry = run.streams.empty() ? runs_.erase(entry) : std::next(entry);
  }
  return told;
}

void PlanPublisher::SendServers(const Coordinator& coordinator,
                                const std::vector<const RunMachine*>& told,
                                absl::Time now) {
  servers_.remove_if([&](ServerStream& stream) {
    if (stream.sink->done()) return true;
    if (coordinator.ServerPlanRevision(stream.server_id) <= stream.revision) {
      return false;
    }
    const bool follows =
        std::any_of(told.begin(), told.end(), [&](const RunMachine* run) {
          return coordinator.FindPlannedShard(stream.server_id, *run)
              .has_value();
        });
    if (IsHeld(stream.sent, now) && !follows) {
      servers_due_ = true;
      next_send_ = std::min(next_send_, stream.sent + kGap);
    } else {
      Offer(coordinator, stream, now);
    }
    return false;
  });
}

void PlanPublisher::Offer(const Coordinator& coordinator, ServerStream& stream,
                          absl::Time now) {
  v1::ServerPlan plan = coordinator.ServerPlanHead(stream.server_id);
  std::map<std::string, ServerRunChanges> given;
  for (const auto& [id, run] : coordinator.runs()) {
    const std::optional<int32_t> shard =
        coordinator.FindPlannedShard(stream.server_id, *run);
    if (!shard.has_value()) continue;
    const auto before = stream.given.find(id);
    const bool is_first = before == stream.given.end();
    ServerRunChanges& changes = given[id];
    if (!is_first) changes = std::move(before->second);
    const ServerMarksOfRun& run_marks = server_marks_[id];
    if (stream.takes_changes && !is_first &&
        run_marks.any <= stream.revision) {
      plan.add_unchanged_run_ids(id);
    } else if (!stream.takes_parts) {
      *plan.add_runs() = coordinator.ServerRunPlan(*run, *shard);
    } else if (auto change = changes.Next(
                   run->state(), run->observed(), *shard,
                   ListMarks(run_marks, stream.revision),
                   [&, machine = run.get()](v1::ServerRunPlan& of_run) {
                     coordinator.AddIslandNames(*machine, of_run);
                   })) {
      *plan.add_runs() = *std::move(change);
    } else {
      plan.add_unchanged_run_ids(id);
    }
  }
  stream.revision = plan.revision();
  stream.given = std::move(given);
  stream.sent = now;
  stream.sink->Offer(std::move(plan));
}

void PlanPublisher::EndAll(const absl::Status& status) {
  for (const auto& [id, run] : runs_) {
    for (const IslandStream& stream : run.streams) stream.sink->End(status);
  }
  for (const ServerStream& stream : servers_) stream.sink->End(status);
  runs_.clear();
  servers_.clear();
}

}  // namespace atl::coordinator
