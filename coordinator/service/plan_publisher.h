// Sends plans to the streams of islands and servers, when they have changed.
//
// An island gets its plan if the part that all islands of the run share or its
// own part differs from what its stream was given last. It gets none if only a
// SEAL is new that has its contribution. A server gets the plans of its own runs;
// if it has the feature "plans of changed runs", those that have not changed are
// only named, and with "plans of changed parts" a run's plan says only what has
// changed.
//
// The first change goes out at once. Changes within kGap of a run's newest
// plans (of a server's newest plan) go out together at the end of that time. The
// first plan of a stream, the last plans of a run, and the end of a stream do
// not wait.
//
// Every call passes the same core, whose state is durable. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/codec/sha256.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/outputs/island_parts.h"
#include "coordinator/core/outputs/server_changes.h"
#include "coordinator/service/plan_sink.h"
#include "coordinator/service/stream_room.h"

namespace atl::coordinator {

class PlanPublisher {
 public:
  static constexpr absl::Duration kGap = absl::Milliseconds(20);

  struct Bounds {
    // No run takes the streams of others, and all of them together fit into
    // memory: with TLS a connection and its stream need up to 128 KiB, and a
    // port takes 8192 connections. The control benchmark has as many.
    StreamBound islands = {10'000, 2048};
    size_t servers = 4096;
    // Streams of one island or server. A newer stream ends the oldest.
    size_t a_caller = 4;
    // Plans of a run's islands that go out before the calls that have arrived
    // are decided: a heartbeat does not wait for a thousand plans.
    size_t slice = 64;
  };
  using IslandSink = PlanSink<EncodedIslandPlan>;
  using ServerSink = PlanSink<v1::ServerPlan>;

  explicit PlanPublisher(const Bounds& bounds) : bounds_(bounds) {}

  // Gives the sink its first plan, and keeps it while it may have more. The sink
  // is ended with the error if it may have none.
  void AddIsland(const Coordinator& coordinator, const std::string& run_id,
                 const IslandCredentials& island,
                 std::shared_ptr<IslandSink> sink);
  // `features` as PeerFeatures returns them.
  void AddServer(const Coordinator& coordinator, const std::string& server_id,
                 int64_t incarnation, const std::string& directory_id,
                 uint64_t features, std::shared_ptr<ServerSink> sink,
                 absl::Time now);

  // Notes the plans that may have changed. Ends the streams of callers that are
  // not members or servers any longer.
  void Note(const Coordinator& coordinator, const Effects& effects);
  // The core was rebuilt: every stream gets a plan.
  void NoteAll(const Coordinator& coordinator);
  // Sends what is due at `now`.
  void Send(const Coordinator& coordinator, absl::Time now);
  // When Send is needed if nothing else changes; InfiniteFuture: not.
  absl::Time NextSend() const { return next_send_; }
  // When Send looks for streams that have ended; InfiniteFuture: not.
  absl::Time NextSweep() const {
    return runs_.empty() ? absl::InfiniteFuture() : next_sweep_;
  }
  // Islands whose last stream has ended since the last call, with its run_id.
  // The same island may have a new stream by the time of the call: then it is
  // left out.
  std::vector<std::pair<std::string, IslandCredentials>> TakeEnded();
  // The island of each stream, with its run_id.
  std::vector<std::pair<std::string, IslandCredentials>> ListIslands() const;

  void EndAll(const absl::Status& status);

 private:
  struct IslandStream {
    IslandCredentials island;
    std::shared_ptr<IslandSink> sink;
    int32_t slot = 0;
    absl::Time sent = absl::InfinitePast();  // Its newest plan but the first.
    // Its newest plan had this Run.shared_number, and an own part whose text with
    // sealed rounds has this digest.
    int64_t shared_number = 0;
    codec::Sha256Digest own = {};
  };
  // The streams of a run.
  struct Run {
    // First those that may lack what is due.
    std::list<IslandStream> streams;
    PlanChange due;
    size_t left_count = 0;  // Streams that may lack it.
    bool is_begun = false;  // Some streams were sent it.
    absl::Time sent = absl::InfinitePast();
    SharedPart shared;          // Unless due.shared, of the present state.
    std::string rounds;         // shared.rounds and shared.evaluators, encoded.
    int64_t shared_number = 0;  // Grows when shared.bytes change.
  };
  struct ServerStream {
    std::string server_id;
    int64_t incarnation = 0;
    std::string directory_id;
    bool takes_changes = false;  // Plans of changed runs,
    bool takes_parts = false;    // and of changed parts.
    std::shared_ptr<ServerSink> sink;
    int64_t revision = -1;  // That of its newest plan.
    absl::Time sent = absl::InfinitePast();
    // The plans of its runs, by run_id, as it was given them.
    std::map<std::string, ServerRunChanges> given;
  };
  // The newest revisions with which parts of a run's plan may have changed for
  // servers.
  struct ServerMarksOfRun {
    int64_t any = 0;
    int64_t all_members = 0;
    int64_t names = 0;
    std::vector<int64_t> members;  // By slot.
  };

  // OK, with `run` set, if the island may have plans.
  static absl::Status Check(const Coordinator& coordinator,
                            const std::string& run_id,
                            const IslandCredentials& island,
                            const RunMachine*& run);
  // Brings run.shared to the present state; due.shared is false afterwards.
  static void Refresh(const Coordinator& coordinator, const RunMachine& machine,
                      Run& run);
  // Sends the stream its plan, if that is its first or differs from the one
  // before.
  static void Offer(const Coordinator& coordinator, const RunMachine& machine,
                    const Run& run, IslandStream& stream, bool is_first);
  // Ends the streams of `run` that `change` concerns, and whose callers are not
  // members any longer.
  void EndInvalid(const Coordinator& coordinator, const std::string& run_id,
                  const PlanChange& change, Run& run);
  void NoteEnded(const std::string& run_id, const IslandStream& stream) {
    ended_.emplace_back(run_id, stream.island);
  }
  void DropDoneIslands();
  // Returns the runs whose plans went out.
  std::vector<const RunMachine*> SendIslands(const Coordinator& coordinator,
                                             absl::Time now);
  // Servers of `told`, whose islands were just sent plans, do not wait: an
  // island may push at once.
  void SendServers(const Coordinator& coordinator,
                   const std::vector<const RunMachine*>& told, absl::Time now);
  // Sends at most Bounds.slice plans; the others stay due.
  void SendRun(const Coordinator& coordinator, const std::string& run_id,
               Run& run, absl::Time now);
  void NoteServers(const std::string& run_id, const PlanChange& change,
                   int64_t revision);
  // The parts of the run's plan that may have changed after `revision`.
  static ServerMarks ListMarks(const ServerMarksOfRun& run, int64_t revision);
  void Offer(const Coordinator& coordinator, ServerStream& stream,
             absl::Time now);

  const Bounds bounds_;
  std::map<std::string, Run> runs_;  // Those with streams.
  std::list<ServerStream> servers_;
  std::map<std::string, ServerMarksOfRun> server_marks_;  // By run_id.
  std::vector<std::pair<std::string, IslandCredentials>> ended_;
  bool islands_due_ = false;  // Some run.due has something.
  bool servers_due_ = false;  // Some server may lack a plan.
  absl::Time next_sweep_ = absl::InfinitePast();
  absl::Time next_send_ = absl::InfiniteFuture();
};

}  // namespace atl::coordinator
