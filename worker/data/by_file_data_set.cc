#include "worker/data/by_file_data_set.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "worker/data/data_file_reader.h"

namespace atl::worker {
namespace {

// A file's place in the sequence of all tokens.
struct FilePiece {
  int32_t file_index = 0;
  int64_t first_token = 0;
};

class ByFileDataSet : public DataSet {
 public:
  ByFileDataSet(const v1::DataSpec& spec, Manifest manifest,
                std::unique_ptr<FileSource> source)
      : DataSet(spec),
        manifest_(std::move(manifest)),
        token_bytes_(GetTokenBytes(manifest_)),
        source_(std::move(source)) {
    for (const bool is_held_out : {false, true}) {
      for (const int32_t index : FindFiles(manifest_, is_held_out)) {
        pieces_.push_back({index, token_count_});
        token_count_ += manifest_.files[index].token_count;
      }
      if (is_held_out) continue;
      training_count_ = static_cast<int32_t>(pieces_.size());
      training_tokens_ = token_count_;
    }
  }

  absl::StatusOr<std::string> Fingerprint() const override {
    return ComputeFingerprint(manifest_);
  }

  int64_t token_count() const override { return token_count_; }

  TokenRange validation() const override {
    return {training_tokens_, token_count_};
  }

  std::vector<WindowGroup> window_groups(int32_t data_shard) const override {
    std::vector<WindowGroup> groups;
    for (int32_t i = data_shard; i < training_count_;
         i += spec_.data_shard_count()) {
      const ManifestFile& file = manifest_.files[pieces_[i].file_index];
      const int64_t begin = pieces_[i].first_token;
      groups.push_back({.key = pieces_[i].file_index,
                        .tokens = {begin, begin + file.token_count},
                        .name = absl::StrCat("file ", file.path)});
    }
    return groups;
  }

  absl::Status Ready(int64_t offset, int64_t count) const override {
    RETURN_IF_ERROR(CheckRange(offset, count));
    std::vector<int32_t> missing;
    for (auto piece = FindPiece(offset);
         piece != pieces_.end() && piece->first_token < offset + count;
         ++piece) {
      const auto index = static_cast<int32_t>(piece - pieces_.begin());
      MutexLock lock(&mutex_);
      if (open_[Kind(index)].piece_index == index) continue;
      missing.push_back(piece->file_index);
    }
    return missing.empty() ? absl::OkStatus() : source_->Ready(missing);
  }

  void Prefetch(int64_t offset) const override {
    if (!CheckRange(offset, 1).ok()) return;
    source_->Prefetch(FindPiece(offset)->file_index);
  }

  absl::Status Read(int64_t offset, absl::Span<int32_t> tokens) const override {
    RETURN_IF_ERROR(CheckRange(offset, static_cast<int64_t>(tokens.size())));
    auto piece = FindPiece(offset);
    while (!tokens.empty()) {
      const int64_t begin = offset - piece->first_token;
      const int64_t left =
          manifest_.files[piece->file_index].token_count - begin;
      const int64_t part = std::min<int64_t>(tokens.size(), left);
      RETURN_IF_ERROR(ReadPiece(static_cast<int32_t>(piece - pieces_.begin()),
                                begin, tokens.first(part)));
      tokens.remove_prefix(part);
      offset += part;
      ++piece;
    }
    return absl::OkStatus();
  }

 private:
  struct OpenFile {
    int32_t piece_index = -1;
    std::shared_ptr<const DataFileReader> reader;
  };

  // 0: of training, 1: held out.
  int Kind(int32_t piece_index) const {
    return piece_index >= training_count_ ? 1 : 0;
  }

  absl::Status CheckRange(int64_t offset, int64_t count) const {
    if (offset >= 0 && count <= token_count_ - offset) return absl::OkStatus();
    return absl::OutOfRangeError(
        absl::StrCat("tokens [", offset, ", ", offset + count,
                     ") are not in a data set of ", token_count_));
  }

  std::vector<FilePiece>::const_iterator FindPiece(int64_t offset) const {
    return std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                            [](int64_t token, const FilePiece& p) {
                              return token < p.first_token;
                            }) -
           1;
  }

  absl::Status ReadPiece(int32_t piece_index, int64_t begin,
                         absl::Span<int32_t> tokens) const {
    ASSIGN_OR_RETURN(const std::shared_ptr<const DataFileReader> reader,
                     OpenPiece(piece_index));
    const ManifestFile& file = manifest_.files[pieces_[piece_index].file_index];
    const int64_t header_bytes =
        file.size_bytes - token_bytes_ * file.token_count;
    std::string bytes(tokens.size() * token_bytes_, '\0');
    RETURN_IF_ERROR(reader->ReadAt(header_bytes + begin * token_bytes_,
                                   absl::MakeSpan(bytes)));
    WidenTokens(bytes.data(), token_bytes_, tokens);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const DataFileReader>> OpenPiece(
      int32_t piece_index) const {
    const int kind = Kind(piece_index);
    {
      MutexLock lock(&mutex_);
      if (open_[kind].piece_index == piece_index) return open_[kind].reader;
      // The cache may need the space of the file that was read before.
      open_[kind] = {};
    }
    const int32_t file_index = pieces_[piece_index].file_index;
    ASSIGN_OR_RETURN(std::shared_ptr<const DataFileReader> reader,
                     source_->Open(file_index));
    const ManifestFile& file = manifest_.files[file_index];
    ASSIGN_OR_RETURN(const TokenLayout layout,
                     reader->ReadLayout(file.size_bytes, manifest_.format));
    if (layout.token_bytes != token_bytes_ ||
        layout.token_count != file.token_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "file ", file.path, " has ", layout.token_count, " tokens of ",
          layout.token_bytes, " bytes, but the manifest says ",
          file.token_count, " of ", token_bytes_, ": publish it again"));
    }
    const int32_t next = NextPiece(piece_index);
    if (next != piece_index) source_->Prefetch(pieces_[next].file_index);
    MutexLock lock(&mutex_);
    open_[kind] = {piece_index, reader};
    return reader;
  }

  // The file that is read after `piece_index`.
  int32_t NextPiece(int32_t piece_index) const {
    if (piece_index >= training_count_) {
      return std::min(piece_index + 1,
                      static_cast<int32_t>(pieces_.size()) - 1);
    }
    const int32_t count = spec_.data_shard_count();
    return piece_index + count < training_count_ ? piece_index + count
                                                 : piece_index % count;
  }

  const Manifest manifest_;
  const int64_t token_bytes_;
  const std::unique_ptr<FileSource> source_;
  std::vector<FilePiece> pieces_;  // Training files, then held-out ones.
  int32_t training_count_ = 0;
  int64_t training_tokens_ = 0;
  int64_t token_count_ = 0;

  mutable Mutex mutex_;
  mutable OpenFile open_[2] ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status CheckManifestFits(const v1::DataSpec& spec,
                               const Manifest& manifest) {
  if (spec.order() != v1::DATA_ORDER_BY_FILE) {
    return absl::InvalidArgumentError(
        "data by URL has only the order by_file: give data.order = "
        "\"by_file\"");
  }
  if (spec.format() != manifest.format) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the format of the data is ", GetFormatWord(manifest.format),
        ", as its manifest says, and the run's is ",
        v1::DataFormat_Name(spec.format()), ": leave data.format out"));
  }
  const size_t training_count = FindFiles(manifest, false).size();
  if (spec.data_shard_count() < 1 ||
      spec.data_shard_count() > static_cast<int64_t>(training_count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", spec.data_shard_count(), " data shards and ",
        training_count,
        " files to train on, but each data shard takes at least one file: "
        "choose fewer data shards, or publish smaller files (atoll data "
        "publish --shard-bytes)"));
  }
  const std::string fingerprint = ComputeFingerprint(manifest);
  if (!spec.fingerprint().empty() && spec.fingerprint() != fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the data is not the run's: the manifest's fingerprint is ",
        fingerprint, ", the run's is ", spec.fingerprint()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DataSet>> MakeByFileDataSet(
    const v1::DataSpec& spec, Manifest manifest,
    std::unique_ptr<FileSource> source) {
  RETURN_IF_ERROR(CheckManifestFits(spec, manifest));
  return std::make_unique<ByFileDataSet>(spec, std::move(manifest),
                                         std::move(source));
}

}  // namespace atl::worker
