// Contributions and imports that arrive: admitted, written, finished.

#include "server/shard/shard.h"

#include <cmath>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/shard/decided_status.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

// This shard's part of the fragment's digest, from the stored bytes.
absl::StatusOr<Digest128> ComputeDigest(const Contribution& contribution) {
  const ShardRange& range = contribution.range();
  Digest128 digest;
  std::vector<float> elements(codec::kBlockElements);
  for (int64_t b = range.blocks().begin; b < range.blocks().end; ++b) {
    const IndexRange block = {b, b + 1};
    RETURN_IF_ERROR(contribution.Read(block, elements.data()));
    digest += BlockDigest(
        b, absl::MakeConstSpan(elements.data(), range.ElementCount(block)));
  }
  return digest;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Contribution>> Shard::OpenPush(
    const v1::PushHeader& header, absl::string_view session_sha256) {
  const auto key = ContributionKey::FromProto(header.info().key());
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(machine_.AdmitPush(header, session_sha256));
    machine_.OnOpening(key);
  }
  absl::StatusOr<std::shared_ptr<Contribution>> bound =
      store_->contributions().Bind(header.info());
  const absl::Cleanup opened = [this, &key] {
    MutexLock lock(&mutex_);
    machine_.OnOpened(key);
  };
  if (!bound.ok()) return OnLogError(header.info(), bound.status());
  const std::shared_ptr<Contribution> contribution = *std::move(bound);
  // Another stream may have bound the key in the meantime.
  if (contribution->info().SerializeAsString() !=
      header.info().SerializeAsString()) {
    return Refuse(Code::kAborted, "KEY_IS_BOUND",
                  absl::StrCat(contribution->key().ToString(),
                               " is bound to another header; push what the "
                               "first one said, or take the next seq"));
  }
  if (contribution->state() == Contribution::State::kPartial) {
    MutexLock lock(&mutex_);
    machine_.OnBound(header.info());
  }
  // A live merge may have waited only for this contribution.
  if (live_ != nullptr) Advance();
  return contribution;
}

absl::Status Shard::CheckMember(int32_t slot) const {
  MutexLock lock(&mutex_);
  return machine_.CheckMember(slot);
}

absl::StatusOr<std::shared_ptr<Contribution>> Shard::OpenImport(
    const v1::ImportHeader& header) {
  v1::ContributionInfo info;
  *info.mutable_key() = ContributionKey::OfImport(header.fragment()).ToProto();
  info.set_anchor_version(-1);
  *info.mutable_digest() = header.digest();
  info.set_codec(v1::CODEC_F32);
  std::shared_ptr<Contribution> contribution;
  // Asked again after binding: it may have become version 0 in between.
  for (const bool bound : {false, true}) {
    {
      MutexLock lock(&mutex_);
      ASSIGN_OR_RETURN(const bool done, machine_.AdmitImport(header));
      if (done) break;
    }
    if (bound) return contribution;
    absl::StatusOr<std::shared_ptr<Contribution>> made =
        store_->contributions().Bind(info);
    if (!made.ok()) return OnLogError(info, made.status());
    contribution = *std::move(made);
    if (contribution->info().SerializeAsString() != info.SerializeAsString()) {
      return Refuse(
          Code::kAlreadyExists, "OTHER_MODEL",
          absl::StrCat(
              "another model is being imported into fragment ",
              header.fragment(), " (digest ",
              Digest128::FromProto(contribution->info().digest()).ToHex(),
              "); create another run for this one"));
    }
  }
  DropImports();
  return nullptr;
}

absl::StatusOr<bool> Shard::WriteBlocks(
    Contribution& contribution, IndexRange blocks,
    absl::Span<const absl::string_view> pieces,
    absl::Span<const BlockFact> facts) {
  absl::StatusOr<bool> last =
      store_->contributions().WriteBlocks(contribution, blocks, pieces, facts);
  if (!last.ok()) return OnLogError(contribution.info(), last.status());
  return last;
}

void Shard::FinishLater(std::shared_ptr<Contribution> contribution) {
  resources_.finish_queue.Post(
      [self = shared_from_this(), contribution = std::move(contribution)] {
        self->RunFinish(contribution);
      });
}

void Shard::RunFinish(const std::shared_ptr<Contribution>& contribution) {
  const ContributionKey& key = contribution->key();
  const absl::Status whole = CheckWhole(*contribution);
  if (absl::IsInvalidArgument(whole)) {
    RefuseWhole(*contribution, whole);
    return;
  }
  absl::StatusOr<double> norm_squared = 0.0;
  if (whole.ok()) {
    norm_squared = store_->contributions().Finish(*contribution);
  } else {
    norm_squared = whole;
    contribution->Reopen();
  }
  if (!norm_squared.ok()) {
    LOG(WARNING) << "run " << store_->run().run_id() << ": cannot store "
                 << key.ToString() << ": " << norm_squared.status().ToString();
    waiters_.Settle(key,
                    OnLogError(contribution->info(), norm_squared.status()));
    return;
  }
  TestPoint("a contribution is stored");
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (key.is_import()) {
      machine_.OnImported(key.fragment);
    } else if (machine_.Knows(key) &&
               store_->contributions().Find(key) == contribution) {
      machine_.OnStored(contribution->info(), *norm_squared,
                        contribution->live_set_id());
    } else {
      // It was dropped or will be; no later action would drop it.
      status = DroppedStatus(key);
    }
    blocked_reasons_.Erase(
        {BlockedReasons::Cause::kTakeContributions, key.fragment, 0, ""});
  }
  Advance();
  Changed();
  // At durability `island` only the COMMIT settles it.
  if (contribution->keeps_bytes()) waiters_.Settle(key, status);
}

absl::Status Shard::CheckWhole(const Contribution& contribution) const {
  if (contribution.key().is_import()) {
    ASSIGN_OR_RETURN(const Digest128 digest, ComputeDigest(contribution));
    if (digest == Digest128::FromProto(contribution.info().digest())) {
      return absl::OkStatus();
    }
    return Refuse(Code::kInvalidArgument, "WRONG_DIGEST",
                  absl::StrCat("its blocks have digest ", digest.ToHex(),
                               ", which is not the header's"));
  }
  const double norm_max = store_->run().spec().outer().contribution_norm_max();
  const double norm = std::sqrt(contribution.NormSquared());
  if (norm_max > 0 && !(norm <= norm_max)) {
    return Refuse(
        Code::kInvalidArgument, "NORM_TOO_LARGE",
        absl::StrCat("its norm over shard ", store_->shard(), " is ", norm,
                     ", and outer.contribution_norm_max is ", norm_max));
  }
  return absl::OkStatus();
}

void Shard::RefuseWhole(const Contribution& contribution,
                        const absl::Status& reason) {
  const ContributionKey& key = contribution.key();
  const ContributionKey keys[] = {key};
  const std::string text(CutUtf8(reason.message(), kRefusalBytesMax));
  const absl::Status refused =
      key.is_import()
          ? store_->contributions().Drop(keys)
          : store_->contributions().Refuse(contribution.info(), text);
  if (!refused.ok()) {
    // Without a record the next start would not know of the refusal.
    waiters_.Settle(key, OnLogError(contribution.info(),
                                    Annotate(refused,
                                             "cannot record that it is "
                                             "refused")));
    return;
  }
  if (!key.is_import()) {
    MutexLock lock(&mutex_);
    machine_.OnRefused(contribution.info(), text);
  }
  Changed();
  waiters_.Settle(
      key, Annotate(reason, absl::StrCat(key.ToString(), " is refused")));
}

}  // namespace atl::server
