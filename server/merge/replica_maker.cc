#include "server/merge/replica_maker.h"

#include <utility>

#include "absl/memory/memory.h"
#include "base/status/status_macros.h"

namespace atl::server {

absl::StatusOr<std::unique_ptr<ReplicaMaker>> ReplicaMaker::Create(
    RunStore& store, int32_t fragment, int64_t version,
    std::shared_ptr<VersionFile> from, std::shared_ptr<VersionFile> to) {
  if (store.versions().deltas() == nullptr)
    return std::unique_ptr<ReplicaMaker>();
  ASSIGN_OR_RETURN(std::shared_ptr<DeltaFile> delta,
                   store.versions().deltas()->New(fragment, version));
  return absl::WrapUnique(new ReplicaMaker(store, fragment, version,
                                           std::move(from), std::move(to),
                                           std::move(delta)));
}

ReplicaMaker::ReplicaMaker(RunStore& store, int32_t fragment, int64_t version,
                           std::shared_ptr<VersionFile> from,
                           std::shared_ptr<VersionFile> to,
                           std::shared_ptr<DeltaFile> delta)
    : store_(store),
      layout_(store.versions().deltas()->layout(fragment)),
      version_(version),
      step_(layout_, store.run().spec().exchange(), version),
      from_(std::move(from)),
      to_(std::move(to)),
      delta_(std::move(delta)) {}

absl::Status ReplicaMaker::MakeTile(IndexRange blocks, const float* theta,
                                    ReplicaBuffers& buffers, Digest128& digest,
                                    bool& finite) const {
  const int array = store_.versions().replica_array();
  const size_t count = static_cast<size_t>(
      store_.range(layout_.fragment()).ElementCount(blocks));
  VersionImage keep_from, keep_to, keep_delta;
  VersionFile& holder = to_->carries(array) ? *to_ : *from_;
  const float* from = holder.Map(array, blocks, &keep_from);
  if (from == nullptr) {
    if (buffers.from.size() < count) buffers.from.resize(count);
    RETURN_IF_ERROR(from_->Read(array, blocks, buffers.from.data()));
    from = buffers.from.data();
  }
  float* to = to_->Map(array, blocks, &keep_to);
  if (to == nullptr) {
    if (buffers.to.size() < count) buffers.to.resize(count);
    to = buffers.to.data();
  }
  char* encoded = delta_->Map(blocks, &keep_delta);
  if (encoded == nullptr) {
    const size_t bytes = static_cast<size_t>(layout_.ByteCount(blocks));
    if (buffers.encoded.size() < bytes) buffers.encoded.resize(bytes);
    encoded = buffers.encoded.data();
  }
  const ReplicaStep::Result result =
      step_.Advance(blocks, theta, from, to, encoded);
  // The round is aborted: what the version holds then is never read.
  finite &= result.finite;
  if (!result.finite) return absl::OkStatus();
  digest += result.digest;
  RETURN_IF_ERROR(delta_->Write(blocks, encoded));
  return to_->Write(array, blocks, to);
}

void ReplicaMaker::Publish() const {
  store_.versions().deltas()->Publish(layout_.fragment(), version_, delta_);
}

}  // namespace atl::server
