// The deltas of a run with a view: found, and made again if they are missing.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/core/view.h"
#include "server/store/run_store.h"

namespace atl::server {
namespace {

// What is read at a time: 1 MiB.
constexpr int64_t kReadBlocks = 64;

}  // namespace

absl::Status RunStore::RecoverDeltas() {
  if (!HasView(run_.spec())) return absl::OkStatus();
  const std::string directory = absl::StrCat(directory_, "/deltas");
  RETURN_IF_ERROR(fs_.CreateDirectories(directory));
  std::vector<int64_t> persisted;
  {
    MutexLock lock(&mutex_);
    for (const records::FragmentState& fragment : state_.fragments()) {
      persisted.push_back(fragment.version());
    }
  }
  ASSIGN_OR_RETURN(deltas_,
                   DeltaRing::Open(fs_, directory, {run_.run_id(), shard_},
                                   DownCodec(run_.spec()), ranges_, persisted,
                                   images_));
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    if (ranges_[f].empty()) continue;
    // The newest persisted version, and one that an earlier process prepared.
    for (const int64_t version : {persisted[f], persisted[f] + 1}) {
      const absl::StatusOr<bool> made = MakeDeltaAgain(f, version);
      if (!made.ok()) {
        LOG(WARNING) << "run " << run_.run_id() << ": no D of version "
                     << version << " of fragment " << f
                     << ", islands get the view in full: " << made.status();
      } else if (*made && version == persisted[f]) {
        deltas_->Persist(f, version);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RunStore::MakeDeltaAgain(int32_t fragment,
                                              int64_t version) {
  const std::optional<HeldVersion> from = FindVersion(fragment, version - 1);
  const std::optional<HeldVersion> to = FindVersion(fragment, version);
  if (!from || !to || !deltas_->Chain(fragment, version - 1, version).empty()) {
    return false;
  }
  const ShardRange& range = ranges_[fragment];
  const EncodedLayout& layout = deltas_->layout(fragment);
  const ViewStep step(layout, run_.spec().exchange(), version);
  ASSIGN_OR_RETURN(const std::shared_ptr<DeltaFile> delta,
                   deltas_->New(fragment, version));
  std::vector<float> theta, view_before, view;
  std::string encoded;
  Digest128 digest;
  for (int64_t b = range.blocks().begin; b < range.blocks().end;
       b += kReadBlocks) {
    const IndexRange blocks = {b,
                               std::min(b + kReadBlocks, range.blocks().end)};
    for (std::vector<float>* values : {&theta, &view_before, &view}) {
      values->resize(range.ElementCount(blocks));
    }
    encoded.resize(layout.ByteCount(blocks));
    RETURN_IF_ERROR(to->file->Read(0, blocks, theta.data()));
    RETURN_IF_ERROR(
        from->file->Read(view_array(), blocks, view_before.data()));
    digest += step.Advance(blocks, theta.data(), view_before.data(),
                           view.data(), encoded.data())
                  .digest;
    RETURN_IF_ERROR(delta->Write(blocks, encoded.data()));
  }
  if (digest != to->view_digest) {
    return absl::DataLossError("it does not lead to the view that is held");
  }
  deltas_->Publish(fragment, version, delta);
  return true;
}

}  // namespace atl::server
