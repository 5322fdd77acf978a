// What happens to contributions whose bytes are lost.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/failpoint/failpoint.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/run_store.h"

namespace atl::server {
namespace {

// Blocks that are read at a time: 1 MiB at most.
constexpr int64_t kReadBlocks = 64;

// DATA_LOSS if a block of it does not match.
absl::Status CheckBytes(const Contribution& contribution) {
  const ShardRange& range = contribution.range();
  std::vector<char> bytes;
  for (int64_t b = range.blocks().begin; b < range.blocks().end;
       b += kReadBlocks) {
    const IndexRange blocks = {b,
                               std::min(b + kReadBlocks, range.blocks().end)};
    bytes.resize(contribution.encoded().ByteCount(blocks));
    RETURN_IF_ERROR(contribution.ReadEncoded(blocks, bytes.data()));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ContributionKey> RunStore::FindDamaged(const v1::Seal& seal) const {
  std::vector<ContributionKey> damaged;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto contribution = Find(ContributionKey::FromProto(sealed.key()));
    // Level ISLAND: it has no bytes here.
    if (contribution == nullptr || contribution->is_merged_live()) continue;
    const absl::Status checked = CheckBytes(*contribution);
    if (!absl::IsDataLoss(checked)) continue;
    LOG(ERROR) << "run " << run_.run_id() << ": "
               << contribution->key().ToString()
               << " is lost here: " << checked.ToString();
    damaged.push_back(contribution->key());
  }
  return damaged;
}

absl::Status RunStore::Lose(absl::Span<const ContributionKey> keys) {
  // For what no COMMIT needs. Records first: while they name the segments,
  // these must be there.
  RecordBatch batch;
  for (const ContributionKey& key : keys) DeleteRecords(key, &batch);
  failpoint::Hit("server.lost.before");
  RETURN_IF_ERROR(records_.Write(batch, durability_));
  failpoint::Hit("server.lost.after");
  for (const ContributionKey& key : keys) {
    std::shared_ptr<Contribution> lost;
    {
      MutexLock lock(&mutex_);
      const auto it = contributions_.find(key);
      if (it == contributions_.end()) continue;
      lost = std::move(it->second);
      contributions_.erase(it);
    }
    const std::unique_ptr<Segment> segment = lost->ReleaseSegment();
    if (segment != nullptr) fs_.Remove(segment->path).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace atl::server
