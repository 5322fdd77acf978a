// Parameter servers in this process, over loopback, with the test as their
// coordinator. Waits end with an error after kPatience. Not thread-safe, except
// that Push may run in several threads.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/testing/fake_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/metrics/metrics.h"
#include "base/rpc/channel.h"
#include "base/rpc/certificates/tls.h"
#include "coordinator/client/testing/fake_server_control_client.h"
#include "server/client/parameter_client.h"
#include "server/parameter_server.h"
#include "server/store/shard_names.h"

namespace atl::server {

// A run of two fragments, the second with one short tensor; Nesterov.
v1::Run SmallRun();

// Sets the checksum that matches the chunk.
void SumChunk(v1::Chunk& chunk);

class TestCluster {
 public:
  static constexpr absl::Duration kPatience = absl::Minutes(2);

  TestCluster(const v1::Run& run, int server_count, int merge_threads = 1);
  ~TestCluster();

  // Before Begin: gives the servers a second run, kTwin, of the same spec.
  void AddTwin();
  static constexpr char kTwin[] = "twin";

  // For servers that are started from now on.
  ParameterServer::Options& options() { return options_; }
  // Before any start: `issue` makes a certificate for each common name.
  void UseTls(std::function<rpc::TlsFiles(const std::string&)> issue);
  absl::Status StartAll();
  absl::Status Start(int shard);
  void Stop(int shard);
  // Stops it and loses what was not synced.
  void CutPower(int shard);
  ParameterServer& server(int shard) { return *nodes_[shard]->server; }
  FakeFileSystem& fs(int shard) { return nodes_[shard]->fs; }
  const Metrics& metrics(int shard) const { return *nodes_[shard]->metrics; }
  // Paths of the run's shard on its server.
  static ShardNames Names(int shard);

  // Every server's plan, without `shard`; Publish sends it to all.
  v1::ServerRunPlan& plan() { return plan_; }
  // The twin's; separate from Begin on.
  v1::ServerRunPlan& twin_plan() { return *twin_plan_; }
  void Publish();
  // With `deleted_uid`: the run of that run_uid is deleted.
  void PublishWithoutRun(
      const std::optional<std::string>& deleted_uid = std::nullopt);
  // Plans come with this position of the coordinator's log from now on.
  void SetLog(const v1::LogPosition& log) { log_ = log; }
  // Servers that place the run from now on, and plans, get another run of the
  // same id, as it is before Begin.
  void CreateAgain(const std::string& run_uid);
  // A shard's newest report once `done` accepts it; of kTwin if `twin`.
  // DEADLINE_EXCEEDED: none was accepted; the message has the last report.
  absl::StatusOr<v1::ShardReport> WaitForReport(
      int shard, const std::function<bool(const v1::ShardReport&)>& done,
      bool twin = false);
  // Waits until the server's newest report names no run.
  // DEADLINE_EXCEEDED: it still names one.
  absl::Status WaitForNoRun(int shard);
  // Waits until the server has applied the newest plan, by which it admits
  // calls.
  // DEADLINE_EXCEEDED: it never did.
  absl::Status WaitForPlan(int shard);
  coordinator::FakeServerControlClient& control(int shard) {
    return *nodes_[shard]->control;
  }
  void FailNext(int shard, const std::string& method, absl::Status status) {
    nodes_[shard]->control->FailNext(method, std::move(status));
  }
  // False if the server does not register `count` times.
  bool WaitForRegistrations(int shard, size_t count);
  // Waits for version 0, makes the run ACTIVE, opens rounds, tells all servers.
  absl::Status Begin();
  // Seals `infos` with equal weights.
  void AddSeal(int32_t fragment, int64_t version,
               std::vector<v1::ContributionInfo> infos, int64_t attempt = 0);
  // Also waits until all shards are prepared; returns the sum of their digests.
  absl::StatusOr<Digest128> Seal(int32_t fragment, int64_t version,
                                 std::vector<v1::ContributionInfo> infos,
                                 int64_t attempt = 0);
  absl::StatusOr<Digest128> WaitForPrepared(int32_t fragment, int64_t version,
                                            int64_t attempt = 0);
  // Commits what Seal returned; waits until all servers have persisted it.
  absl::Status Commit(int32_t fragment, int64_t version,
                      const Digest128& digest, int64_t attempt = 0);
  void AddCommit(int32_t fragment, int64_t version, const Digest128& digest,
                 int64_t attempt = 0);
  int64_t commit_seq() const { return plan_.commit_seq(); }
  // Pins the newest cut as a checkpoint.
  v1::Pin AddCheckpoint(const std::string& pin_id);
  // The coordinator restores the run to a cut: all servers get the plan, which
  // has no later pins.
  void Restore(const v1::Pin& pin);
  // A shard's first report under the plan's run_epoch. DEADLINE_EXCEEDED: as
  // WaitForReport.
  absl::StatusOr<v1::ShardReport> WaitForRestore(int shard);

  // --- An island's part -----------------------------------------------------
  const RunLayout& layout() const { return layout_; }
  // A slot's outer gradient in a round; depends on the arguments only.
  std::vector<float> Gradient(int32_t fragment, int32_t slot,
                              int64_t version) const;
  v1::ContributionInfo Info(int32_t fragment, int32_t slot, int64_t version,
                            const std::vector<float>& gradient) const;
  std::vector<char> Encode(int32_t fragment,
                           const std::vector<float>& gradient) const;
  absl::Status Push(const v1::ContributionInfo& info,
                    const std::vector<float>& gradient,
                    absl::Duration patience = kPatience);
  absl::Status PushEncoded(const v1::ContributionInfo& info,
                           absl::Span<const char> encoded,
                           absl::Duration patience = kPatience);
  absl::StatusOr<std::vector<float>> Pull(int32_t fragment, int64_t version,
                                          int32_t slot = 0);
  // Takes `replica` from `from_version` (-1: none) to `version`; payload bytes.
  absl::StatusOr<int64_t> PullReplica(int32_t fragment, int64_t version,
                                      int64_t from_version,
                                      std::vector<float>& replica);
  absl::Status Import(int32_t fragment, const std::vector<float>& elements);
  absl::Status Round(int64_t version, int slots);
  // SHA-256 of the newest version of all fragments, in model order.
  absl::StatusOr<std::string> Sha256();

  static std::string Secret(int32_t slot);
  // An island's channel options, with its certificate if any.
  rpc::ChannelOptions Channel(int32_t slot) const;
  absl::StatusOr<std::unique_ptr<ParameterClient>> Client(int32_t slot);
  std::unique_ptr<v1::ParameterService::Stub> Stub(int shard, int32_t slot = 0);
  v1::PushHeader Header(const v1::ContributionInfo& info, int shard) const;

 private:
  struct Node {
    FakeFileSystem fs;
    std::unique_ptr<coordinator::FakeServerControlClient> control;
    std::unique_ptr<Metrics> metrics;  // Of the newest start.
    std::unique_ptr<ParameterServer> server;
  };

  void MakePlan();
  v1::ServerPlan ServerPlan() const;

  v1::Run run_;
  const RunLayout layout_;
  ParameterServer::Options options_;
  std::vector<rpc::TlsFiles> certificates_;  // By island; empty: plaintext.
  std::vector<std::unique_ptr<Node>> nodes_;
  v1::ServerRunPlan plan_;
  std::optional<v1::ServerRunPlan> twin_plan_;
  v1::LogPosition log_;
  std::map<int32_t, int64_t> newest_commits_;  // commit_seq by fragment.
  int64_t revision_ = 0;
};

}  // namespace atl::server
