// The real path of the round benchmark as processes: a coordinator, a server
// and islands (round_island.h) with one run of one large tensor.
//
// Not thread-safe.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "base/flags/flags.h"
#include "tests/benchmarks/child_process.h"

namespace atl::benchmarks {

using Children = std::vector<std::unique_ptr<ChildProcess>>;

// Longest wait for a child's answer: gigabytes, on a shared machine.
inline constexpr absl::Duration kPatience = absl::Minutes(10);

absl::Status GiveAll(const Children& children, const std::string& order);
absl::Status ExpectAll(const Children& children, const std::string& answer);
absl::Status OrderAll(const Children& children, const std::string& order,
                      const std::string& answer);

struct ClusterOptions {
  int island_count = 1;
  int64_t element_count = 0;  // A multiple of 4096.
  int round_count = 1;        // Rounds to play.
  v1::Durability durability = v1::DURABILITY_PROCESS;
  v1::ExchangeSpec exchange;  // F32 both ways if nothing is set.
  std::string directory;      // Created, and removed at the end.
  std::string coordinator_binary;
  std::string server_binary;
  // Command of an island; Start adds --index and --coordinator.
  std::vector<std::string> island_command;
};

// Flags of a program that starts clusters, and itself as their islands.
struct ClusterFlags {
  std::string directory;  // TEST_TMPDIR, or /tmp.
  std::string coordinator_binary = "coordinator/atoll-coordinator";
  std::string server_binary = "server/atoll-server";
  // With which it starts itself.
  std::string role;
  int index = 0;
  std::string coordinator;
};
void AddClusterFlags(flags::Command& app, ClusterFlags& flags);

class RoundCluster {
 public:
  RoundCluster() = default;
  // Kills the processes and removes their files.
  ~RoundCluster();
  RoundCluster(const RoundCluster&) = delete;
  RoundCluster& operator=(const RoundCluster&) = delete;

  // Starts everything. Afterwards the islands have joined and hold version 0.
  absl::Status Start(const ClusterOptions& options);

  const Children& islands() const { return islands_; }
  pid_t server_pid() const { return server_->pid(); }
  std::vector<pid_t> pids() const;

 private:
  std::string directory_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> server_;
  Children islands_;
};

}  // namespace atl::benchmarks
