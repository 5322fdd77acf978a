#include "worker/data/fetch/downloader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

constexpr absl::Duration kBackoffMin = absl::Seconds(1);
// Bytes that are evicted at once if the disk is full.
constexpr int64_t kEvictBytes = int64_t{64} << 20;

absl::Duration GetBackoff(int failure_count) {
  absl::Duration delay = kBackoffMin;
  for (int i = 1; i < failure_count && delay < Downloader::kBackoffMax; ++i) {
    delay *= 2;
  }
  return std::min(delay, Downloader::kBackoffMax);
}

bool IsTransient(const absl::Status& status) {
  return IsAway(status) || absl::IsAborted(status) ||
         absl::IsAlreadyExists(status);
}

// An operator may mend it, or it passes.
bool IsMendable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) || absl::IsResourceExhausted(status);
}

absl::string_view GetRemedy(const absl::Status& failure) {
  switch (failure.code()) {
    case absl::StatusCode::kNotFound:
      return "; publish it again: `atoll data publish`";
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return "; let this island read it, or give --data with a copy";
    default:
      return "";
  }
}

}  // namespace

Downloader::Downloader(DownloaderOptions options)
    : options_(std::move(options)) {
  if (options_.bytes_per_second > 0) {
    bucket_.emplace(options_.bytes_per_second, absl::Milliseconds(100));
  }
}

absl::StatusOr<Downloader::Reader> Downloader::Fetch(const ManifestFile& file,
                                                     bool is_needed) {
  if (file.size_bytes > options_.cache->bytes_max()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "data file ", file.path, " has ", file.size_bytes,
        " bytes, but the cache ", options_.cache->directory(), " takes only ",
        options_.cache->bytes_max(), ": give a larger --cache-size"));
  }
  Progress progress;
  progress.is_needed = is_needed;
  progress.mark_time = options_.clock->Now();
  progress.mark_bytes = options_.cache->GetPartBytes(file);
  progress.part_bytes = progress.mark_bytes;
  while (!options_.cancelled()) {
    absl::StatusOr<Reader> reader = Try(file, is_needed, progress);
    if (reader.ok()) return reader;
    RETURN_IF_ERROR(Judge(file, reader.status(), progress));
  }
  return absl::CancelledError(
      absl::StrCat("stopped while waiting for data file ", file.path));
}

absl::StatusOr<Downloader::Reader> Downloader::Try(const ManifestFile& file,
                                                   bool is_needed,
                                                   Progress& progress) {
  progress.source_failed = false;
  ASSIGN_OR_RETURN(Reader found, options_.cache->Find(file));
  if (found != nullptr) return found;
  ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> part,
                   options_.cache->Write(file));
  if (!options_.cache->MakeRoom(file.size_bytes - part->size_bytes())) {
    const std::string full = absl::StrCat(
        "files in use fill the cache ", options_.cache->directory(), " of ",
        options_.cache->bytes_max(), " bytes: give a larger --cache-size");
    if (!is_needed) return absl::ResourceExhaustedError(full);
    LOG(WARNING) << full << "; it exceeds its size now";
  }
  if (store_ == nullptr) {
    ASSIGN_OR_RETURN(store_, options_.open_store(options_.cancelled));
  }
  RETURN_IF_ERROR(Download(file, *part, progress));
  const absl::Status right = part->Check();
  progress.source_failed = !right.ok();
  RETURN_IF_ERROR(right);
  return part->Commit();
}

absl::Status Downloader::Download(const ManifestFile& file, PartFile& part,
                                  Progress& progress) {
  absl::Status local;
  ReadRange range;
  range.offset = part.size_bytes();
  range.length = file.size_bytes - part.size_bytes();
  if (*range.length == 0) return absl::OkStatus();
  const absl::Status read =
      store_->Read(file.path, range, [&](absl::string_view bytes) {
        if (options_.cancelled()) return absl::CancelledError("stopped");
        Pace(static_cast<int64_t>(bytes.size()));
        local = Append(part, bytes);
        return local;
      });
  RETURN_IF_ERROR(local);
  progress.source_failed = !read.ok();
  if (absl::IsOutOfRange(read)) {
    RETURN_IF_ERROR(part.Restart());
    return absl::DataLossError("it is shorter than its manifest says");
  }
  // A source without ranges: the file is read from its beginning, each time.
  if (absl::IsUnimplemented(read) && range.offset > 0) {
    RETURN_IF_ERROR(part.Restart());
    return absl::UnavailableError(read.message());
  }
  return read;
}

absl::Status Downloader::Append(PartFile& part, absl::string_view bytes) {
  while (true) {
    const absl::Status status = part.Append(bytes);
    if (!absl::IsResourceExhausted(status)) return status;
    if (options_.cache->Evict(kEvictBytes) > 0) continue;
    return Annotate(
        status,
        absl::StrCat(
            "the disk of the cache ", options_.cache->directory(),
            " is full: free space, or name a directory of another disk with "
            "--data-cache"));
  }
}

void Downloader::Pace(int64_t bytes) {
  if (!bucket_.has_value()) return;
  const absl::Time now = options_.clock->Now();
  const absl::Time due = bucket_->Take(bytes, now);
  if (due > now) options_.pause(due - now);
}

absl::Status Downloader::Judge(const ManifestFile& file,
                               const absl::Status& failure,
                               Progress& progress) {
  const std::string what =
      absl::StrCat("data file ", file.path, " from ", GetUrl(file));
  const bool is_wrong = progress.source_failed && absl::IsDataLoss(failure);
  if (is_wrong && ++progress.wrong_count >= kWrongMax) {
    return Annotate(failure, absl::StrCat(what,
                                          " is not the one that was "
                                          "published"));
  }
  // The next try says it.
  if (absl::IsCancelled(failure) && options_.cancelled()) {
    return absl::OkStatus();
  }
  if (!is_wrong && !IsTransient(failure) &&
      !(progress.is_needed && IsMendable(failure))) {
    return Annotate(failure, what);
  }
  const absl::Time now = options_.clock->Now();
  const int64_t part_bytes = options_.cache->GetPartBytes(file);
  if (part_bytes != progress.part_bytes) {
    progress.part_bytes = part_bytes;
    progress.failure_count = 0;
  }
  // A part that begins anew is no progress.
  progress.mark_bytes = std::min(progress.mark_bytes, part_bytes);
  if (part_bytes - progress.mark_bytes >=
      kProgressBytesPerSecond * absl::ToInt64Seconds(options_.patience)) {
    progress.mark_bytes = part_bytes;
    progress.mark_time = now;
  }
  if (now - progress.mark_time >= options_.patience) {
    const absl::Status given_up = Annotate(
        failure, absl::StrCat(what, ": less than ", kProgressBytesPerSecond,
                              " bytes/s came for ",
                              absl::FormatDuration(options_.patience)));
    return absl::Status(given_up.code(),
                        absl::StrCat(given_up.message(), GetRemedy(failure)));
  }
  options_.on_failure(failure);
  const absl::Duration wait = GetBackoff(++progress.failure_count);
  // Another process that downloads it gives the same failure every second.
  if (progress.failure_count > 1 || !progress.is_told) {
    progress.is_told = true;
    LOG(WARNING) << "waits for " << what << ", next try in " << wait << ": "
                 << failure.message();
  }
  options_.pause(wait);
  return absl::OkStatus();
}

std::string Downloader::GetUrl(const ManifestFile& file) const {
  return store_ == nullptr ? "its source" : store_->GetUrl(file.path);
}

}  // namespace atl::worker
