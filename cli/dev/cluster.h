// The processes of one `atoll dev up`: a coordinator, servers and islands. Each
// is restarted when it dies, within a budget.
//
// Thread-compatible. Use it only from the process's first thread (child.h).

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/dev/child.h"
#include "cli/dev/dev_directory.h"

namespace atl::cli {

struct Programs {
  std::string atoll;
  std::string coordinator;
  std::string server;
};

// Finds the programs next to the running `executable`: as installed
// (DIR/atoll-coordinator) or as built (DIR/../coordinator/atoll-coordinator).
//
// NOT_FOUND: a program is at neither path; the message names both.
absl::StatusOr<Programs> FindPrograms(const std::string& executable);

class Cluster {
 public:
  struct Options {
    Programs programs;
    int server_count = 1;
    int island_count = 1;
    int threads = 1;  // Threads per island.
    // Flags for every start of an island.
    std::vector<std::string> island_flags;
    bool restart = true;
    // Flags by child ("server-0"), for its first start only.
    std::map<std::string, std::vector<std::string>> first_flags;
    // Longest wait until a child serves.
    absl::Duration start_timeout = absl::Seconds(60);
    // Most deaths of a child in `restart_window`.
    int restart_count_max = 10;
    absl::Duration restart_window = absl::Minutes(1);
    std::stop_token stop;
    // Receives events: "server-0 was killed by signal 9; restarting it".
    std::function<void(const std::string&)> on_note;
  };

  // `directory` outlives this.
  Cluster(const DevDirectory& directory, Options options)
      : directory_(directory), options_(std::move(options)) {}
  // Kills all children.
  ~Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Each starts its children and waits until they serve. A restarted
  // coordinator or server keeps its port.
  //
  // DEADLINE_EXCEEDED: a child does not serve in time. CANCELLED: `stop`.
  // Others: as Tend.
  absl::Status StartCoordinator();
  absl::Status StartServers();
  // Does not wait: islands do not listen.
  absl::Status StartIslands(const std::string& run_id);

  // Detects deaths and restarts children when due. Call it several times a
  // second. Writes DIR/prometheus-targets.json when a child has a new metrics
  // port or has ended: for Prometheus' file_sd_configs, one target a child. Its
  // labels are `job` (atoll-coordinator, atoll-server, atoll-island),
  // `instance` (the child's name), and on a server `server`.
  //
  // ABORTED: a child exceeded its budget, or died in a way that a restart does
  // not repair (an island's exit codes 2 and 4); the message has the end of its
  // log. Others: as Child::Start.
  absl::Status Tend(absl::Time now);

  // True when no island runs or awaits a restart.
  bool IslandsEnded() const;

  // Kills the islands, then ends the servers and the coordinator by SIGTERM.
  // Killed islands stay members, so that the run can resume with them.
  void Stop();

  // "127.0.0.1:PORT"; empty before it serves.
  std::string coordinator_address() const;
  std::vector<std::string> server_addresses() const;

 private:
  enum class Role { kCoordinator, kServer, kIsland };

  struct Member {
    Role role = Role::kServer;
    std::unique_ptr<Child> child;
    RestartBudget budget;
    std::string port_path;     // Empty for an island.
    std::string metrics_path;  // Its --metrics-port-file.
    // 0 before the process has listened. A restarted one listens there again.
    int port = 0;
    int metrics_port = 0;
    absl::Time start_time = absl::InfiniteFuture();  // When it starts again.
    bool ended = false;                              // Not restarted.
  };

  // Adds and starts a member. `arguments` lack the program and --listen.
  absl::Status AddMember(Role role, const std::string& name,
                         const std::string& program,
                         std::vector<std::string> arguments);
  // Makes the coordinator's log if it does not exist, and waits for that.
  absl::Status InitCoordinator(const std::string& data_dir);
  absl::Status AwaitPorts();
  absl::Status StartMember(Member& member);
  absl::Status HandleExit(Member& member, const ChildExit& exit,
                          absl::Time now);
  absl::Status GiveUp(const Child& child, absl::string_view why) const;
  void Note(const std::string& text) const;
  absl::Status WriteTargets();

  const DevDirectory& directory_;
  const Options options_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace atl::cli
