// Copies the shard's checkpoints to the mirror.

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mirror/part_format.h"
#include "server/shard/shard.h"

namespace atl::server {
namespace {

// One: an upload that succeeds proves that the mirror takes any.
constexpr BlockedReasons::Cause kMirrorCause = {
    BlockedReasons::Cause::kMirror, 0, 0, ""};

}  // namespace

std::vector<std::string> Shard::MirrorArrayNames() const {
  const bool has_replica = store_->versions().replica_array() != 0;
  return mirror::ArrayNames(
      store_->versions().state_count() - (has_replica ? 1 : 0), has_replica);
}

absl::StatusOr<MirrorJob> Shard::MakeMirrorJob(const v1::Pin& pin) {
  MirrorJob job;
  job.shard = store_->shard();
  {
    MutexLock lock(&mutex_);
    job.place = {machine_.run_uid(), machine_.run_epoch(), pin.commit_seq()};
  }
  for (const v1::FragmentVersion& wanted : pin.cut()) {
    const int32_t f = wanted.fragment();
    if (f < 0 || f >= store_->layout().fragment_count()) continue;
    const ShardRange& range = store_->range(f);
    if (range.empty()) continue;
    const std::optional<HeldVersion> held =
        store_->versions().Find(f, wanted.version());
    if (!held.has_value()) {
      return absl::NotFoundError(absl::StrCat(
          "version ", wanted.version(), " of fragment ", f, " is not here"));
    }
    job.parts.push_back({{.place = job.place,
                          .shard = job.shard,
                          .shard_count = store_->shard_count(),
                          .fragment = f,
                          .version = wanted.version(),
                          .array_names = MirrorArrayNames()},
                         held->file,
                         range});
  }
  // Weak: a job that waits must not keep the shard of a deleted run.
  job.on_done = [weak = weak_from_this(),
                 pin](const std::vector<MirroredPart>& parts) {
    if (const auto self = weak.lock()) self->OnMirrored(pin, parts);
  };
  job.on_failed = [weak = weak_from_this(), pin](const absl::Status& error) {
    if (const auto self = weak.lock()) self->OnMirrorFailed(pin, error);
  };
  return job;
}

void Shard::RunMirror(const v1::Pin& pin) {
  if (resources_.mirror == nullptr) {
    return OnMirrorFailed(
        pin, absl::FailedPreconditionError(
                 "this server has no mirror: start it with the coordinator's "
                 "--mirror"));
  }
  absl::StatusOr<MirrorJob> job = MakeMirrorJob(pin);
  if (!job.ok()) return OnMirrorFailed(pin, job.status());
  // Under the lock: after Close no job comes that EndUses would not end.
  MutexLock lock(&mutex_);
  if (closed_.ok()) resources_.mirror->Add(*std::move(job));
}

void Shard::OnMirrored(const v1::Pin& pin,
                       const std::vector<MirroredPart>& parts) {
  std::vector<v1::MirroredPart> told;
  for (const MirroredPart& part : parts) {
    v1::MirroredPart& one = told.emplace_back();
    one.set_fragment(part.fragment);
    one.set_size_bytes(part.size_bytes);
    one.set_sha256(part.sha256);
  }
  {
    MutexLock lock(&mutex_);
    blocked_reasons_.Erase(kMirrorCause);
    machine_.OnMirrored(pin, std::move(told), MirrorArrayNames());
  }
  Advance();
  Changed();
}

void Shard::OnMirrorFailed(const v1::Pin& pin, const absl::Status& error) {
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    NoteBlockedReason(
        kMirrorCause,
        absl::StrCat("copy checkpoint ", pin.pin_id(), " to the mirror"),
        error);
  }
  Changed();
}

}  // namespace atl::server
