// The memory that a run's versions are in.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "server/store/delta_file.h"
#include "server/store/run_store.h"

namespace atl::server {

int RunStore::optimizer_count() const {
  return state_count_ - (HasReplica(run_.spec()) ? 1 : 0);
}

int64_t RunStore::ImageBytesMax() const {
  // The next version is made in the places of the newest one's arrays; but
  // theta has two if islands pull it.
  const int64_t arrays = 1 + state_count_ + (HasReplica(run_.spec()) ? 0 : 1);
  int64_t bytes = 0;
  for (const ShardRange& range : ranges_) {
    bytes += arrays * ImagePool::AsBytes(VersionFile::ImageElementCount(range));
    if (!HasReplica(run_.spec())) continue;
    const EncodedLayout delta(layout_, range.fragment(),
                              DownCodec(run_.spec()));
    bytes += 2 * ImagePool::AsBytes(
                     DeltaFile::ImageElementCount(delta, range.blocks()));
  }
  return bytes;
}

void RunStore::SetImages(int32_t fragment, int64_t version, VersionFile& file) {
  if (images_ == nullptr) return;
  const std::optional<HeldVersion> from = FindVersion(fragment, version - 1);
  // What islands pull has two places, so that those who pull late find it in
  // memory; in a run with a view that is D.
  const bool has_replica = HasReplica(run_.spec());
  std::vector<int> to_make;
  for (int array = 0; array <= state_count_; ++array) {
    VersionImage image;
    if (from && maps_state_ && (array > 0 || has_replica)) {
      image = from->file->TakeImage(array);
    }
    if (image != nullptr) {
      file.SetImage(array, std::move(image), /*carried=*/true);
    } else if (array == 0 || array > optimizer_count()) {
      to_make.push_back(array);
    }
  }
  // What has to do without memory is the optimizer's: nobody pulls it.
  for (int array = 1; maps_state_ && array <= optimizer_count(); ++array) {
    if (!file.carries(array)) to_make.push_back(array);
  }
  const int64_t count = VersionFile::ImageElementCount(ranges_[fragment]);
  for (const int array : to_make) file.SetImage(array, images_->Take(count));
}

void RunStore::DropOldImages(int32_t fragment) {
  MutexLock lock(&mutex_);
  // In the order of versions.
  VersionFile* newest = nullptr;
  for (const auto& [place, held] : versions_) {
    const bool committed = place.second == 0 || held.commit_seq > 0;
    if (place.first != fragment || !committed) continue;
    if (newest != nullptr) newest->DropImage();
    newest = held.file.get();
  }
}

}  // namespace atl::server
