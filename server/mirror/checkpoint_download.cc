#include "server/mirror/checkpoint_download.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/part_format.h"
#include "base/mirror/part_reader.h"
#include "base/status/status_macros.h"
#include "server/store/run_store.h"
#include "server/store/shard_names.h"
#include "server/store/shard_range.h"
#include "server/store/version_file.h"

namespace atl::server {
namespace {

// A version file of a shard, of the blocks that parts have.
class VersionWriter {
 public:
  // Both must outlive it. `has_replica`: the last array is the replica.
  VersionWriter(const ShardRange& range, int array_count, bool has_replica,
                VersionFile& file)
      : range_(range),
        array_count_(array_count),
        has_replica_(has_replica),
        file_(file) {}

  // Writes a block, once each, if the shard holds it.
  absl::Status Add(int array, int64_t block,
                   const std::vector<float>& elements) {
    if (block < range_.blocks().begin || block >= range_.blocks().end) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(file_.Write(array, {block, block + 1}, elements.data()));
    ++block_count_;
    if (array == 0) digest_ += BlockDigest(block, elements);
    if (has_replica_ && array == array_count_ - 1) {
      replica_digest_ += BlockDigest(block, elements);
    }
    return absl::OkStatus();
  }

  bool is_whole() const {
    return block_count_ == range_.block_count() * array_count_;
  }
  int array_count() const { return array_count_; }
  const Digest128& digest() const { return digest_; }
  const Digest128& replica_digest() const { return replica_digest_; }

 private:
  const ShardRange& range_;
  const int array_count_;
  const bool has_replica_;
  VersionFile& file_;
  int64_t block_count_ = 0;
  Digest128 digest_;
  Digest128 replica_digest_;
};

// Gives the blocks of a part's arrays to a version.
class BlockReader {
 public:
  // Both must outlive it. `range`: the part's, which is not empty.
  BlockReader(const ShardRange& range, VersionWriter& version)
      : range_(range), version_(version), block_(range.blocks().begin) {
    StartBlock();
  }

  // DATA_LOSS: more bytes than the arrays have.
  absl::Status Add(absl::string_view bytes) {
    while (!bytes.empty()) {
      if (is_whole()) {
        return absl::DataLossError("a part has more bytes than its arrays");
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

  bool is_whole() const { return array_ == version_.array_count(); }

 private:
  void StartBlock() {
    elements_.resize(
        static_cast<size_t>(range_.ElementCount({block_, block_ + 1})));
    filled_bytes_ = 0;
  }

  absl::Status EndBlock() {
    RETURN_IF_ERROR(version_.Add(array_, block_, elements_));
    if (++block_ == range_.blocks().end) {
      block_ = range_.blocks().begin;
      ++array_;
    }
    StartBlock();
    return absl::OkStatus();
  }

  const ShardRange& range_;
  VersionWriter& version_;
  int array_ = 0;
  int64_t block_;
  std::vector<float> elements_;  // Those of block_.
  size_t filled_bytes_ = 0;
};

// DATA_LOSS unless the manifest is of the cut, and of the shard's run.
absl::Status CheckSource(const mirror::MirroredCheckpoint& source,
                         const RunLayout& layout,
                         const std::vector<std::string>& array_names,
                         const DownloadSpec& spec) {
  const storage::v1::MirrorManifest& manifest = source.manifest();
  const auto& cut = spec.restored.cut();
  bool is_same = source.layout().fingerprint() == layout.fingerprint() &&
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

// Says what to do about a damaged checkpoint.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(
      status.message(), "; restore the run to another checkpoint"));
}

// Reads a part whole, and gives its blocks to `version`.
absl::Status ReadPart(ObjectStore& store, const RunLayout& layout,
                      const mirror::FoundPart& part, const DownloadSpec& spec,
                      VersionWriter& version) {
  const ShardRange range(layout, part.identity.fragment, part.identity.shard,
                         part.identity.shard_count);
  BlockReader reader(range, version);
  RETURN_IF_ERROR(WithAdvice(mirror::ReadPart(
      store, layout, part, [&](absl::string_view bytes) -> absl::Status {
        if (spec.is_cancelled && spec.is_cancelled()) {
          return absl::CancelledError("the server is stopping");
        }
        return reader.Add(bytes);
      })));
  if (reader.is_whole()) return absl::OkStatus();
  return WithAdvice(absl::DataLossError(
      absl::StrCat(store.GetUrl(part.name), " ends before its arrays do")));
}

// Makes the shard's file of a version, of the parts that have its blocks.
absl::Status DownloadVersion(ObjectStore& store,
                             const mirror::MirroredCheckpoint& source,
                             const v1::FragmentVersion& wanted,
                             const DownloadSpec& spec) {
  const storage::v1::MirrorManifest& manifest = source.manifest();
  const v1::Run& run = spec.record.run();
  const ShardNames names(spec.data_dir, run.run_id(), run.run_uid(),
                         spec.record.shard());
  const int32_t f = wanted.fragment();
  const std::string path = names.VersionPath(f, wanted.version());
  const ShardRange range(source.layout(), f, spec.record.shard(),
                         spec.record.shard_count());
  // Found before disk space is taken: sizes are only claims until then.
  std::vector<mirror::FoundPart> parts;
  for (const storage::v1::MirrorPart& part : manifest.parts()) {
    if (part.fragment() != f) continue;
    const IndexRange blocks =
        ShardRange(source.layout(), f, part.shard(), manifest.shard_count())
            .blocks();
    if (blocks.begin >= range.blocks().end ||
        blocks.end <= range.blocks().begin) {
      continue;
    }
    absl::StatusOr<mirror::FoundPart> found =
        mirror::FindPart(store, manifest, part);
    RETURN_IF_ERROR(WithAdvice(found.status()));
    parts.push_back(*std::move(found));
  }
  const int array_count = manifest.array_names_size();
  ASSIGN_OR_RETURN(const std::unique_ptr<VersionFile> file,
                   VersionFile::Create(spec.fs, absl::StrCat(path, ".tmp"),
                                       range, array_count - 1));
  VersionWriter version(range, array_count, HasReplica(run.spec()), *file);
  for (const mirror::FoundPart& part : parts) {
    RETURN_IF_ERROR(ReadPart(store, source.layout(), part, spec, version));
  }
  const auto lacks = [&](absl::string_view what) {
    return WithAdvice(absl::DataLossError(absl::StrCat(
        store.GetUrl(mirror::ManifestName(mirror::GetPlace(manifest))), " ",
        what)));
  };
  if (!version.is_whole()) {
    return lacks(absl::StrCat("names no part for blocks of fragment ", f));
  }
  if (range.block_count() == source.layout().fragment_block_count(f) &&
      wanted.has_digest() &&
      version.digest() != Digest128::FromProto(wanted.digest())) {
    return lacks(absl::StrCat("names parts of fragment ", f,
                              " that do not have the digest of its version"));
  }
  RETURN_IF_ERROR(file->Seal({run.run_id(), spec.record.shard(),
                              wanted.version(), wanted.commit_seq(),
                              version.digest(), version.replica_digest()}));
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
  for (const int32_t fragment : lost) {
    RETURN_IF_ERROR(DownloadVersion(store, **source,
                                    spec.restored.cut(fragment), spec));
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
