// A sealed round's contributions on one shard, read block by block: their
// merge, and a verdict's statistics. Immutable, so thread-safe. Calls block on
// the disk.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/plan.pb.h"
#include "base/layout/layout.h"
#include "base/layout/merge_groups.h"
#include "server/core/merge/gram_sums.h"
#include "server/core/merge/merge_rule.h"
#include "server/store/encoded_source.h"
#include "server/store/run_store.h"

namespace atl::server {

class SealedSet {
 public:
  // `store`, `rule` and `seal` must outlive it.
  // FAILED_PRECONDITION: a contribution is not stored here, or the verdict of
  // `seal` is not for these contributions.
  static absl::StatusOr<SealedSet> Open(RunStore& store, const MergeRule& rule,
                                        const v1::Seal& seal);
  // The same for these contributions, in seal order. `range` must outlive it.
  static absl::StatusOr<SealedSet> Of(
      const ShardRange& range, const v1::RunSpec& spec, const MergeRule& rule,
      const v1::Seal& seal,
      std::vector<std::shared_ptr<const EncodedSource>> contributions);

  // Merges `blocks` into `gradient`, shape [elements of blocks]. `buffer`, one
  // a thread, grows to a tile, or for a rule that takes rows to a block of
  // every contribution. DATA_LOSS: a file is damaged; the message names it.
  absl::Status Merge(IndexRange blocks, std::vector<float>& buffer,
                     float* gradient) const;

  GramSums NewSums() const;
  // Adds the statistics of `blocks` to `sums`. `buffer` grows to a block of
  // every contribution. DATA_LOSS: as Merge.
  absl::Status Measure(IndexRange blocks, std::vector<float>& buffer,
                       GramSums& sums) const;

 private:
  SealedSet(const ShardRange& range, const MergeRule& rule,
            const v1::Seal& seal, MergeGroups groups, MergeNeeds needs)
      : range_(range),
        rule_(rule),
        seal_(seal),
        groups_(std::move(groups)),
        needs_(needs) {}

  int FindGroup(int64_t block) const;
  // Contribution `i`'s factor in `group`.
  float Factor(int i, int group) const;
  absl::Status MergeSum(IndexRange blocks, std::vector<float>& buffer,
                        float* gradient) const;
  // Reads `block` of every contribution; `rows` are in `buffer`.
  absl::Status ReadRows(int64_t block, std::vector<float>& buffer,
                        std::vector<float*>& rows) const;

  const ShardRange& range_;
  const MergeRule& rule_;
  const v1::Seal& seal_;
  MergeGroups groups_;
  MergeNeeds needs_;
  std::vector<std::shared_ptr<const EncodedSource>> contributions_;
};

}  // namespace atl::server
