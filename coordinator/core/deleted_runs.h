// Deleted runs of which servers may still have files.
//
// A server is told in its plans until a report of it, which takes such a plan
// into account, no longer names the run. Only then the coordinator forgets the
// run. A server that never comes back is told forever.
//
// Durable: the runs and the servers that wait; Add, Forget and the snapshot
// change them. Volatile: which plans named a run, and unfinished reports.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// Pairs of a deleted run and a server that may have files of it. About 11 MB in
// a snapshot.
inline constexpr int64_t kDeletedWaitingMax = 65536;

class DeletedRuns {
 public:
  // Deleted runs that one plan of a server names, the first deleted ones first.
  static constexpr size_t kNamedMax = 256;

  // --- Durable ---------------------------------------------------------------

  // A run was deleted. A run without servers has no files and is not kept.
  void Add(const storage::v1::RunDeleted& deleted);
  // A server no longer has files of it. Unknown pairs are ignored.
  void Forget(const storage::v1::RunForgotten& forgotten);
  // In the order of deletion, each with the servers that still wait.
  std::vector<storage::v1::RunDeleted> ToSnapshot() const;

  // Pairs of a run and a server, at most kDeletedWaitingMax.
  int64_t waiting_count() const { return waiting_count_; }
  // The run with `run_id`, and `run_uid` if that is not empty, that was deleted
  // last; nullptr if no server may have files of it.
  const storage::v1::RunDeleted* Find(const std::string& run_id,
                                      const std::string& run_uid) const;
  bool IsWaiting(const std::string& server_id,
                 const std::string& run_uid) const;
  // True if the server may have files of any deleted run with this id.
  bool IsIdWaiting(const std::string& server_id,
                   const std::string& run_id) const;
  // Servers that may have files, sorted.
  std::vector<std::string> ServerIds() const;

  // --- Plans -----------------------------------------------------------------

  void AddToPlan(const std::string& server_id, v1::ServerPlan& plan) const;
  // Plans from `revision` on name what AddToPlan adds now.
  void NotePlans(int64_t revision);

  // --- Reports ---------------------------------------------------------------

  // Takes a request of a report, in the order of their arrival. Returns the
  // run_uids that the server has let go: once the report is complete, those
  // that its plan named and it does not.
  std::vector<std::string> TakeReport(const v1::ReportShardsRequest& request);
  // A new life of the server: its unfinished report is void.
  void Restart(const std::string& server_id);

 private:
  struct Server {
    // By number: the revision from which on plans name the run; 0: none does.
    std::map<int64_t, int64_t> waiting;
    // The unfinished report: its requests so far, and the waiting runs that
    // they name.
    int64_t report_seq = 0;
    int32_t part_count = 0;
    std::set<std::string> named_uids;
  };

  int64_t next_number_ = 1;
  std::map<int64_t, storage::v1::RunDeleted> runs_;  // In order of deletion.
  std::map<std::string, int64_t> numbers_;           // By run_uid.
  std::map<std::string, Server> servers_;  // Servers that have not deleted all.
  int64_t waiting_count_ = 0;
  bool changed_ = false;  // Since NotePlans.
};

}  // namespace atl::coordinator
