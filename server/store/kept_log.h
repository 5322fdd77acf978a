// Merged contributions that pins keep: their segments stay, under records of
// their own, until the last pin that wants them is gone.
//
// Thread-safe. RunStore writes the record of a kept contribution in the batch
// of the STATE that merged it, then tells it here.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/layout/digest.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/store/contribution.h"
#include "server/store/record_store.h"
#include "server/store/store_context.h"

namespace atl::server {

struct KeptContribution {
  std::shared_ptr<Contribution> contribution;
  // This shard's part, at the version that it was merged into.
  Digest128 digest;
  Digest128 replica_digest;  // Of V, in a run with a replica.
};

class KeptLog {
 public:
  // `context` must outlive it.
  explicit KeptLog(const StoreContext& context) : context_(context) {}

  // Reads the records; before any other call.
  //
  // DATA_LOSS: one is damaged.
  absl::Status Recover();

  // The contribution's record is durable, and of commit `commit_seq`.
  void Put(int64_t commit_seq, const Contribution& contribution);
  // One, to be read.
  //
  // NOT_FOUND: it is not kept. DATA_LOSS: its file is missing or damaged; the
  // message names it.
  absl::StatusOr<KeptContribution> Find(const ContributionKey& key) const;
  // False from the moment that its file is about to go.
  bool Has(const ContributionKey& key) const;
  // Frees what these commits merged, and forgets that pins were given up.
  // Readers go on.
  absl::Status Drop(absl::Span<const int64_t> commit_seqs,
                    absl::Span<const std::string> pins);
  // The same, and notes durably that the pins were given up.
  absl::Status GiveUp(absl::Span<const int64_t> commit_seqs,
                      absl::Span<const std::string> pins,
                      const std::string& reason);

  // The commits of which contributions are kept.
  std::set<int64_t> Commits() const;
  // Paths of all segments.
  std::set<std::string> Paths() const;
  // As Recover found it: pins that were given up, with the reason, and the
  // greatest number of a segment.
  const std::map<std::string, std::string>& given_up() const {
    return given_up_;
  }
  int64_t last_segment() const { return last_segment_; }

 private:
  struct Kept {
    ContributionKey key;
    int64_t segment;
  };

  // Removes the files of what these commits merged, then adds the deletion of
  // its records to `batch`: a crash between them leaves what can be dropped
  // again.
  void Remove(absl::Span<const int64_t> commit_seqs, RecordBatch* batch);

  const StoreContext& context_;
  std::map<std::string, std::string> given_up_;
  int64_t last_segment_ = 0;

  mutable Mutex mutex_;
  // By commit_seq: what it merged and where that is.
  std::map<int64_t, std::vector<Kept>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
