// The processes of one `atoll dev up`: a coordinator, servers and islands, each
// started again when it dies, within a budget.
//
// Thread-compatible; to be used from the process's first thread (child.h).

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

// Paths of the programs.
struct Programs {
  std::string atoll;
  std::string coordinator;
  std::string server;
};

// Finds the programs beside the running `executable`: as installed
// (DIR/atoll-coordinator) or as built (DIR/../coordinator/atoll-coordinator).
//
// NOT_FOUND: a program is at neither place; the message names both.
absl::StatusOr<Programs> FindPrograms(const std::string& executable);

class Cluster {
 public:
  struct Options {
    Programs programs;
    int server_count = 1;
    int island_count = 1;
    int threads = 1;  // Of each island.
    // Flags that every start of an island gets.
    std::vector<std::string> island_flags;
    bool restart = true;
    // Flags that a child ("server-0") gets at its first start only.
    std::map<std::string, std::vector<std::string>> first_flags;
    // Longest wait until a child serves.
    absl::Duration start_timeout = absl::Seconds(60);
    // At most so many deaths of a child in `restart_window`.
    int restart_count_max = 10;
    absl::Duration restart_window = absl::Minutes(1);
    std::stop_token stop;
    // Told what happens: "server-0 was killed by signal 9; started again".
    std::function<void(const std::string&)> on_note;
  };

  // `directory` outlives this.
  Cluster(const DevDirectory& directory, Options options)
      : directory_(directory), options_(std::move(options)) {}
  // Kills what runs.
  ~Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Each starts its children and waits until they serve. A second start of a
  // coordinator or server, after a death, is at the same port.
  //
  // DEADLINE_EXCEEDED: a child does not serve in time. CANCELLED: `stop`.
  // Others: as Tend.
  absl::Status StartCoordinator();
  absl::Status StartServers();
  // Does not wait: islands serve nobody.
  absl::Status StartIslands(const std::string& run_id);

  // Notices deaths and starts again what is due. To be called some times a
  // second.
  //
  // ABORTED: a child died more often than its budget allows, or in a way that
  // starting again will not heal (exit codes 2 and 4 of an island); the message
  // has the end of its log.
  absl::Status Tend(absl::Time now);

  // True when no island runs or is to be started again.
  bool IslandsEnded() const;

  // Ends islands at once (a run goes on where it was, for it is as if they were
  // away), then servers and the coordinator in order.
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
    std::string port_path;                           // Empty for an island.
    int port = 0;                                    // 0 before it has served.
    absl::Time start_time = absl::InfiniteFuture();  // Of the next start.
    bool ended = false;                              // For good.
  };

  // Adds a member; `arguments` are those after the program, without --listen.
  absl::Status AddMember(Role role, const std::string& name,
                         const std::string& program,
                         std::vector<std::string> arguments);
  // Waits until every member has a port.
  absl::Status AwaitPorts();
  absl::Status StartMember(Member& member);
  absl::Status HandleExit(Member& member, const ChildExit& exit,
                          absl::Time now);
  absl::Status GiveUp(const Member& member, absl::string_view why) const;
  void Note(const std::string& text) const;

  const DevDirectory& directory_;
  const Options options_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace atl::cli
