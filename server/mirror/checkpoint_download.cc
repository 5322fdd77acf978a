#include "server/mirror/checkpoint_download.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/part_format.h"
#include "base/status/status_macros.h"
#include "server/store/run_store.h"
#include "server/store/shard_names.h"
#include "server/store/shard_range.h"
#include "server/store/version_file.h"

namespace atl::server {
namespace {

// Writes a part's bytes into a version file, block by block.
class PartWriter {
 public:
  // All must outlive it. `has_replica`: the last array is the replica.
  PartWriter(const std::string& header, const ShardRange& range,
             int array_count, bool has_replica, VersionFile& file)
      : header_(header),
        range_(range),
        array_count_(array_count),
        has_replica_(has_replica),
        file_(file),
        block_(range.blocks().begin) {
    StartBlock();
  }

  // DATA_LOSS: another header, or more bytes than the arrays have.
  absl::Status Add(absl::string_view bytes) {
    sha_.Update(bytes);
    if (header_bytes_ < header_.size()) {
      const size_t size =
          std::min(bytes.size(), header_.size() - header_bytes_);
      if (bytes.substr(0, size) !=
          absl::string_view(header_).substr(header_bytes_, size)) {
        return absl::DataLossError("has another header than its part");
      }
      header_bytes_ += size;
      bytes.remove_prefix(size);
    }
    while (!bytes.empty()) {
      if (array_ == array_count_) {
        return absl::DataLossError("has more bytes than its arrays");
      }
      const size_t block_bytes = elements_.size() * sizeof(float);
      const size_t size = std::min(bytes.size(), block_bytes - filled_bytes_);
      std::memcpy(reinterpret_cast<char*>(elements_.data()) + filled_bytes_,
                  bytes.data(), size);
      filled_bytes_ += size;
      bytes.remove_prefix(size);
      if (filled_bytes_ == block_bytes) RETURN_IF_ERROR(EndBlock());
    }
    return absl::OkStatus();
  }

  bool is_whole() const { return array_ == array_count_; }
  std::string TakeSha256() { return codec::ToHex(sha_.Finish()); }
  const Digest128& digest() const { return digest_; }
  const Digest128& replica_digest() const { return replica_digest_; }

 private:
  void StartBlock() {
    elements_.resize(
        static_cast<size_t>(range_.ElementCount({block_, block_ + 1})));
    filled_bytes_ = 0;
  }

  absl::Status EndBlock() {
    RETURN_IF_ERROR(
        file_.Write(array_, {block_, block_ + 1}, elements_.data()));
    if (array_ == 0) digest_ += BlockDigest(block_, elements_);
    if (has_replica_ && array_ == array_count_ - 1) {
      replica_digest_ += BlockDigest(block_, elements_);
    }
    if (++block_ == range_.blocks().end) {
      block_ = range_.blocks().begin;
      ++array_;
    }
    StartBlock();
    return absl::OkStatus();
  }

  const std::string& header_;
  const ShardRange& range_;
  const int array_count_;
  const bool has_replica_;
  VersionFile& file_;
  codec::Sha256 sha_;
  size_t header_bytes_ = 0;
  int array_ = 0;
  int64_t block_;
  std::vector<float> elements_;  // Those of block_.
  size_t filled_bytes_ = 0;
  Digest128 digest_;
  Digest128 replica_digest_;
};

// DATA_LOSS unless the manifest is of the cut, and of the shard's run.
absl::Status CheckSource(const mirror::MirroredCheckpoint& source,
                         const RunLayout& layout,
                         const std::vector<std::string>& array_names,
                         const DownloadSpec& spec) {
  const storage::v1::MirrorManifest& manifest = source.manifest();
  const auto& cut = spec.restored.cut();
  bool is_same = source.layout().fingerprint() == layout.fingerprint() &&
                 manifest.shard_count() == spec.record.shard_count() &&
                 std::equal(array_names.begin(), array_names.end(),
                            manifest.array_names().begin(),
                            manifest.array_names().end()) &&
                 cut.size() == manifest.pin().cut_size();
  for (int f = 0; is_same && f < cut.size(); ++f) {
    const v1::FragmentVersion& theirs = manifest.pin().cut(f);
    is_same = theirs.fragment() == cut[f].fragment() &&
              theirs.version() == cut[f].version() &&
              theirs.commit_seq() == cut[f].commit_seq() &&
              Digest128::FromProto(theirs.digest()) ==
                  Digest128::FromProto(cut[f].digest());
  }
  if (is_same) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "checkpoint ", spec.restored.pin_id(),
      " in the mirror is another one than that of the run; restore the run to "
      "another checkpoint"));
}

absl::Status DownloadPart(ObjectStore& store,
                          const mirror::MirroredCheckpoint& source,
                          const storage::v1::MirrorPart& part,
                          const v1::FragmentVersion& wanted,
                          const DownloadSpec& spec) {
  const mirror::PartIdentity identity =
      mirror::GetIdentity(source.manifest(), part);
  const std::string name = mirror::PartName(identity.place, part.shard(),
                                            part.fragment(), part.sha256());
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(
        store.GetUrl(name), " ", what,
        "; restore the run to another checkpoint"));
  };
  // Before disk space is taken: the size is only a claim until then.
  const absl::StatusOr<ObjectInfo> info = store.Stat(name);
  if (absl::IsNotFound(info.status())) return damaged("is missing");
  RETURN_IF_ERROR(info.status());
  if (info->size_bytes != part.size_bytes()) {
    return damaged(absl::StrCat("has ", info->size_bytes, " bytes, not ",
                                part.size_bytes()));
  }
  const v1::Run& run = spec.record.run();
  const ShardNames names(spec.data_dir, run.run_id(), run.run_uid(),
                         spec.record.shard());
  const std::string path =
      names.VersionPath(wanted.fragment(), wanted.version());
  const ShardRange range(source.layout(), wanted.fragment(),
                         spec.record.shard(), spec.record.shard_count());
  const auto array_count = static_cast<int>(identity.array_names.size());
  ASSIGN_OR_RETURN(const std::unique_ptr<VersionFile> file,
                   VersionFile::Create(spec.fs, absl::StrCat(path, ".tmp"),
                                       range, array_count - 1));
  const std::string header = mirror::PartHeader(source.layout(), identity);
  PartWriter writer(header, range, array_count, HasReplica(run.spec()), *file);
  absl::Status own;  // The writer's error, which is about the object.
  const absl::Status read = store.Read(
      name, {0, part.size_bytes(), info->etag},
      [&](absl::string_view bytes) -> absl::Status {
        if (spec.is_cancelled && spec.is_cancelled()) {
          return absl::CancelledError("the server is stopping");
        }
        own = writer.Add(bytes);
        return own;
      });
  if (absl::IsDataLoss(own)) return damaged(own.message());
  RETURN_IF_ERROR(own);
  RETURN_IF_ERROR(read);
  if (!writer.is_whole()) return damaged("ends before its arrays do");
  if (writer.TakeSha256() != part.sha256()) {
    return damaged("has another SHA-256 than its manifest says");
  }
  if (range.block_count() ==
          source.layout().fragment_block_count(wanted.fragment()) &&
      wanted.has_digest() &&
      writer.digest() != Digest128::FromProto(wanted.digest())) {
    return damaged("does not have the digest of its version");
  }
  RETURN_IF_ERROR(file->Seal({run.run_id(), spec.record.shard(),
                              wanted.version(), wanted.commit_seq(),
                              writer.digest(), writer.replica_digest()}));
  failpoint::Hit("server.download.before");
  RETURN_IF_ERROR(spec.fs.Rename(file->path(), path));
  RETURN_IF_ERROR(spec.fs.SyncDirectory(names.versions()));
  failpoint::Hit("server.download.after");
  return absl::OkStatus();
}

absl::Status Download(ObjectStore& store, const DownloadSpec& spec) {
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(spec.record.run().spec().layout()));
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> lost,
      RunStore::ListLost(spec.fs, spec.records, spec.data_dir, spec.record,
                         spec.optimizer_state_count, spec.restored));
  if (lost.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(spec.fs.CreateDirectories(
      ShardNames(spec.data_dir, spec.record.run().run_id(),
                 spec.record.run().run_uid(), spec.record.shard())
          .versions()));
  const mirror::CheckpointPlace place = {spec.record.run().run_uid(),
                                         spec.restored.mirror_run_epoch(),
                                         spec.restored.mirror_commit_seq()};
  const absl::StatusOr<std::unique_ptr<mirror::MirroredCheckpoint>> source =
      mirror::MirroredCheckpoint::Open(store, place);
  if (absl::IsNotFound(source.status())) {
    return absl::DataLossError(absl::StrCat(
        source.status().message(),
        ": this server's mirror does not have the checkpoint; start the server "
        "with the coordinator's --mirror, or restore the run to another "
        "checkpoint"));
  }
  RETURN_IF_ERROR(source.status());
  RETURN_IF_ERROR(CheckSource(
      **source, layout,
      mirror::ArrayNames(spec.optimizer_state_count,
                         HasReplica(spec.record.run().spec())),
      spec));
  for (const storage::v1::MirrorPart& part : (*source)->manifest().parts()) {
    if (part.shard() != spec.record.shard() ||
        std::find(lost.begin(), lost.end(), part.fragment()) == lost.end()) {
      continue;
    }
    RETURN_IF_ERROR(DownloadPart(store, **source, part,
                                 spec.restored.cut(part.fragment()), spec));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DownloadVersions(ObjectStore& store, const DownloadSpec& spec) {
  const absl::Status status = Download(store, spec);
  if (status.ok() || absl::IsDataLoss(status) || absl::IsUnavailable(status) ||
      absl::IsResourceExhausted(status)) {
    return status;
  }
  // Credentials and rights can be mended while the server runs.
  return absl::UnavailableError(status.message());
}

}  // namespace atl::server
