#include "worker/api/publish_data.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/codec/sha256.h"
#include "base/object_store/object_url.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/data_files.h"
#include "worker/data/manifest.h"
#include "worker/data/token_file.h"

namespace atl::worker {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

// A file of the manifest: a file of the input, or a part of one.
struct Shard {
  ManifestFile file;
  std::string source;    // Path of the input's file.
  std::string relative;  // The same, relative to the input.
  std::string header;    // Before its bytes, if it is a part.
  int64_t begin = 0;     // Its bytes in the source.
  int64_t end = 0;
};

// Passes the bytes of `shard` to `sink`, in pieces.
template <typename Sink>
absl::Status ReadShard(const Shard& shard, const PublishOptions& options,
                       const Sink& sink) {
  ASSIGN_OR_RETURN(const DataFileReader reader,
                   DataFileReader::Open(shard.source));
  if (!shard.header.empty()) RETURN_IF_ERROR(sink(shard.header));
  std::string buffer(kReadBytes, '\0');
  for (int64_t at = shard.begin; at < shard.end; at += kReadBytes) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError(
          "publishing was stopped; the same command continues it");
    }
    const int64_t count = std::min(kReadBytes, shard.end - at);
    RETURN_IF_ERROR(reader.ReadAt(at, absl::MakeSpan(buffer.data(), count)));
    RETURN_IF_ERROR(sink(absl::string_view(buffer.data(), count)));
  }
  return absl::OkStatus();
}

// "a/b.bin" -> "a/b-00002.bin".
std::string PartPath(absl::string_view path, int64_t number) {
  const bool is_bin = absl::ConsumeSuffix(&path, ".bin");
  return absl::StrFormat("%s-%05d%s", path, number, is_bin ? ".bin" : "");
}

// Adds the parts of `input`, or it itself if it is small enough.
absl::Status AddShards(const DataFile& input, const PublishOptions& options,
                       v1::DataFormat format, std::vector<Shard>& shards) {
  ASSIGN_OR_RETURN(const DataFileReader reader,
                   DataFileReader::Open(input.path));
  ASSIGN_OR_RETURN(const TokenLayout layout,
                   reader.ReadLayout(input.size_bytes, format));
  Shard shard;
  shard.source = input.path;
  shard.relative = input.relative_path;
  if (options.shard_bytes == 0 || input.size_bytes <= options.shard_bytes) {
    shard.end = input.size_bytes;
    shard.file.path = input.relative_path;
    shard.file.size_bytes = input.size_bytes;
    shard.file.token_count = layout.token_count;
    shards.push_back(std::move(shard));
    return absl::OkStatus();
  }
  // Parts of nearly equal size: none is much shorter than the others.
  const int64_t part_tokens_max =
      (options.shard_bytes - layout.header_bytes) / layout.token_bytes;
  const int64_t part_count =
      (layout.token_count + part_tokens_max - 1) / part_tokens_max;
  for (int64_t i = 0; i < part_count; ++i) {
    const int64_t first = layout.token_count * i / part_count;
    const int64_t last = layout.token_count * (i + 1) / part_count;
    if (layout.header_bytes > 0) {
      shard.header = MakeTokenFileHeader(layout.token_bytes, last - first);
    }
    shard.begin = layout.header_bytes + first * layout.token_bytes;
    shard.end = layout.header_bytes + last * layout.token_bytes;
    shard.file.path = PartPath(input.relative_path, i);
    shard.file.size_bytes =
        static_cast<int64_t>(shard.header.size()) + shard.end - shard.begin;
    shard.file.token_count = last - first;
    shards.push_back(shard);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DataFile>> ListInput(const PublishOptions& options,
                                                v1::DataFormat* format) {
  *format = options.format;
  if (*format == v1::DATA_FORMAT_UNSPECIFIED) {
    ASSIGN_OR_RETURN(const std::vector<DataFile> all,
                     ListDataFiles(options.input, v1::DATA_FORMAT_BYTES));
    *format = absl::c_any_of(all,
                             [](const DataFile& file) {
                               return absl::EndsWith(file.path, ".bin");
                             })
                  ? v1::DATA_FORMAT_LLMC
                  : v1::DATA_FORMAT_BYTES;
  }
  ASSIGN_OR_RETURN(std::vector<DataFile> files,
                   ListDataFiles(options.input, *format));
  for (DataFile& file : files) {
    if (!file.relative_path.empty()) continue;
    file.relative_path = file.path.substr(file.path.rfind('/') + 1);
  }
  std::erase_if(files, [](const DataFile& file) {
    return file.relative_path == kDataManifestName;
  });
  return files;
}

// Marks the files that the options name.
absl::Status HoldOutNamed(const PublishOptions& options,
                          std::vector<Shard>& shards) {
  for (const std::string& path : options.held_out_files) {
    bool is_found = false;
    for (Shard& shard : shards) {
      if (shard.relative != path && shard.file.path != path) continue;
      shard.file.is_held_out = true;
      is_found = true;
    }
    if (is_found) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no file \"", path, "\" in ", options.input,
                     " to hold out: give paths relative to it"));
  }
  return absl::OkStatus();
}

absl::Status HoldOutLast(const PublishOptions& options,
                         std::vector<Shard>& shards) {
  if (options.held_out_fraction == 0) return absl::OkStatus();
  if (shards.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.input,
        " is one file, so none can be held out: split it with a --shard-bytes "
        "below its size, or hold nothing out with --held-out 0"));
  }
  int64_t token_count = 0;
  for (const Shard& shard : shards) token_count += shard.file.token_count;
  const double wanted =
      options.held_out_fraction * static_cast<double>(token_count);
  int64_t held_out = 0;
  for (size_t i = shards.size(); i-- > 1 && held_out < wanted;) {
    shards[i].file.is_held_out = true;
    held_out += shards[i].file.token_count;
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const PublishOptions& options) {
  if (!(options.held_out_fraction >= 0) || options.held_out_fraction >= 1) {
    return absl::InvalidArgumentError(
        "the share that is held out must be in [0, 1)");
  }
  if (options.shard_bytes != 0 && options.shard_bytes < kShardBytesMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shard of ", options.shard_bytes,
                     " bytes is smaller than ", kShardBytesMin));
  }
  ASSIGN_OR_RETURN(const ObjectUrl to, ParseObjectUrl(options.to));
  if (to.store == ObjectUrl::Store::kHttp) {
    return absl::UnimplementedError(absl::StrCat(
        RedactUrl(options.to),
        " can only be read, because an HTTPS server has "
        "no common way to take files: publish to s3:// or file://, and serve "
        "that directory"));
  }
  return absl::OkStatus();
}

// One call of PublishData.
class Publisher {
 public:
  explicit Publisher(const PublishOptions& options) : options_(options) {}

  absl::StatusOr<PublishResult> Run() {
    RETURN_IF_ERROR(CheckOptions(options_));
    ASSIGN_OR_RETURN(store_, options_.open_store(options_.to, [this] {
      return options_.stop.stop_requested();
    }));
    RETURN_IF_ERROR(ListShards());
    RETURN_IF_ERROR(HashShards());
    RETURN_IF_ERROR(Annotate(CheckManifest(manifest_), options_.input));
    ASSIGN_OR_RETURN(const bool is_published, IsPublished());
    for (const Shard& shard : shards_) RETURN_IF_ERROR(Upload(shard));
    if (!is_published) RETURN_IF_ERROR(WriteManifestLast());
    return Summarize();
  }

 private:
  absl::Status ListShards() {
    ASSIGN_OR_RETURN(const std::vector<DataFile> files,
                     ListInput(options_, &manifest_.format));
    for (const DataFile& file : files) {
      RETURN_IF_ERROR(AddShards(file, options_, manifest_.format, shards_));
    }
    for (const Shard& shard : shards_) bytes_in_all_ += shard.file.size_bytes;
    return options_.held_out_files.empty() ? HoldOutLast(options_, shards_)
                                           : HoldOutNamed(options_, shards_);
  }

  absl::Status HashShards() {
    for (Shard& shard : shards_) {
      codec::Sha256 sha;
      RETURN_IF_ERROR(ReadShard(shard, options_, [&](absl::string_view bytes) {
        sha.Update(bytes);
        Report(static_cast<int64_t>(bytes.size()));
        return absl::OkStatus();
      }));
      shard.file.sha256 = codec::ToHex(sha.Finish());
      manifest_.files.push_back(shard.file);
    }
    return absl::OkStatus();
  }

  // Whether this data set is published already.
  absl::StatusOr<bool> IsPublished() {
    std::string text;
    const absl::Status read =
        store_->Read(kDataManifestName, {}, [&](absl::string_view bytes) {
          absl::StrAppend(&text, bytes);
          return static_cast<int64_t>(text.size()) > Manifest::kTextBytesMax
                     ? absl::AlreadyExistsError("it is not a manifest")
                     : absl::OkStatus();
        });
    if (absl::IsNotFound(read)) return false;
    RETURN_IF_ERROR(read);
    const absl::StatusOr<Manifest> there =
        ParseManifest(text, store_->GetUrl(kDataManifestName));
    if (there.ok() &&
        ComputeFingerprint(*there) == ComputeFingerprint(manifest_)) {
      return true;
    }
    return absl::AlreadyExistsError(absl::StrCat(
        store_->GetUrl(kDataManifestName),
        " is of another data set, or holds out other files: runs may read it, "
        "so publish to another directory"));
  }

  absl::Status Upload(const Shard& shard) {
    ASSIGN_OR_RETURN(const bool is_there, IsThere(shard.file));
    if (is_there) {
      Report(shard.file.size_bytes);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                     store_->Write(shard.file.path, WriteMode::kReplace));
    writer->set_sha256(shard.file.sha256);
    codec::Sha256 sha;
    RETURN_IF_ERROR(ReadShard(shard, options_, [&](absl::string_view bytes) {
      sha.Update(bytes);
      Report(static_cast<int64_t>(bytes.size()));
      return writer->Append(bytes);
    }));
    if (codec::ToHex(sha.Finish()) != shard.file.sha256) {
      return absl::DataLossError(absl::StrCat(
          shard.source, " changed while it was published: publish again"));
    }
    ++uploaded_count_;
    return writer->Commit();
  }

  absl::StatusOr<bool> IsThere(const ManifestFile& file) {
    const absl::StatusOr<ObjectInfo> there = store_->Stat(file.path);
    if (absl::IsNotFound(there.status())) return false;
    RETURN_IF_ERROR(there.status());
    if (there->size_bytes != file.size_bytes) return Differs(file);
    if (!options_.verify) {
      if (!there->sha256.empty()) {
        if (there->sha256 == file.sha256) return true;
        return Differs(file);
      }
      // A file is read as fast as it was hashed. Another store cannot tell: the
      // file is uploaded again.
      ASSIGN_OR_RETURN(const ObjectUrl to, ParseObjectUrl(options_.to));
      if (to.store != ObjectUrl::Store::kFile) return false;
    }
    ASSIGN_OR_RETURN(const codec::Sha256Digest digest,
                     HashObject(*store_, file.path, {}));
    if (codec::ToHex(digest) == file.sha256) return true;
    return Differs(file);
  }

  // False if the file that is there may be replaced.
  absl::StatusOr<bool> Differs(const ManifestFile& file) const {
    if (options_.verify) return false;
    return absl::AlreadyExistsError(absl::StrCat(
        store_->GetUrl(file.path),
        " is there with other bytes: publish to another directory; or, if all "
        "files there are yours to replace, repeat with --verify"));
  }

  absl::Status WriteManifestLast() {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                     store_->Write(kDataManifestName, WriteMode::kCreate));
    RETURN_IF_ERROR(writer->Append(WriteManifest(manifest_)));
    return writer->Commit();
  }

  PublishResult Summarize() const {
    PublishResult result;
    result.url = store_->GetUrl(kDataManifestName);
    result.fingerprint = ComputeFingerprint(manifest_);
    result.format = manifest_.format;
    result.file_count = static_cast<int64_t>(manifest_.files.size());
    result.uploaded_file_count = uploaded_count_;
    result.smallest_token_count = manifest_.files[0].token_count;
    for (const ManifestFile& file : manifest_.files) {
      result.token_count += file.token_count;
      result.smallest_token_count =
          std::min(result.smallest_token_count, file.token_count);
      if (!file.is_held_out) continue;
      ++result.held_out_file_count;
      result.held_out_token_count += file.token_count;
    }
    return result;
  }

  // There are two passes: one hashes, one uploads.
  void Report(int64_t bytes) {
    bytes_done_ += bytes;
    if (options_.on_progress) {
      options_.on_progress(bytes_done_, 2 * bytes_in_all_);
    }
  }

  const PublishOptions& options_;
  std::unique_ptr<ObjectStore> store_;
  std::vector<Shard> shards_;
  Manifest manifest_;
  int64_t bytes_in_all_ = 0;
  int64_t bytes_done_ = 0;
  int64_t uploaded_count_ = 0;
};

}  // namespace

absl::StatusOr<PublishResult> PublishData(const PublishOptions& options) {
  return Publisher(options).Run();
}

}  // namespace atl::worker
