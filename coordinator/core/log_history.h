// Tells whether a peer has seen more of the coordinator's log than there is.
//
// The log's batches are numbered from 1. Each start of the coordinator has a
// random id and begins with a batch of its own, so it has a range of numbers. A
// peer remembers the newest (start, number) that it was sent. On an older copy
// of the log that start is unknown or its range is shorter, also after the copy
// was continued by starts of its own. A copy has the log's secret, so it knows
// which positions were given out, also those that it has never seen.
//
// A log may supersede a lost one (CoordinatorStarted.supersedes). Its numbers
// continue above any that the lost log had, so a smaller number that it does not
// know is of the lost log, and no fault.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/run.pb.h"

namespace atl::coordinator {

// LogPosition.proof of `position`, with the log's secret.
std::string ProvePosition(const std::string& secret,
                          const v1::LogPosition& position);

class LogHistory {
 public:
  // Starts that are kept. A position of an older start is accepted. The newest
  // start that supersedes, and the newest with a new secret, are always kept.
  static constexpr size_t kStartsMax = 256;

  // Adds the next start, from the log or a snapshot. One without ids leaves no
  // trace.
  void AddStart(const storage::v1::CoordinatorStarted& start);

  // Sets the number of batches that are durable or handed out to become so.
  void set_index(int64_t index) { index_ = index; }
  int64_t index() const { return index_; }

  // Empty before the first start with ids.
  const std::string& cluster_id() const { return cluster_id_; }
  // The key of the proofs. Empty before the first start with ids.
  const std::string& secret() const { return secret_; }
  // The newest starts, oldest first.
  const std::deque<storage::v1::CoordinatorStarted>& starts() const {
    return starts_;
  }
  // The position of batch `index() + ahead`; not set before the first start
  // with ids.
  v1::LogPosition position(int64_t ahead = 0) const;

  // OTHER_CLUSTER, as in Check, if `cluster_id` is another one. Needs no proof.
  std::optional<v1::Fault> CheckCluster(const std::string& cluster_id) const;
  // Returns the fault that `seen` proves; nullopt if it proves none or is not
  // set. OTHER_CLUSTER: expected and found are cluster ids; after a wrong
  // proof, found is the same id "with another log". LOG_BEHIND: they are
  // numbers of batches. The caller adds next_command.
  std::optional<v1::Fault> Check(const v1::LogPosition& seen) const;

 private:
  // The oldest start that is not kept for what it supersedes.
  std::deque<storage::v1::CoordinatorStarted>::const_iterator FindOldest()
      const;

  std::string cluster_id_;
  std::string secret_;
  std::deque<storage::v1::CoordinatorStarted> starts_;
  // Positions before these are of a superseded log, and have proofs of a secret
  // that this log does not have.
  int64_t superseded_end_ = 0;
  int64_t other_secret_end_ = 0;
  int64_t index_ = 0;
};

}  // namespace atl::coordinator
