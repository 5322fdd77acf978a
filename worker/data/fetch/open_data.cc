#include "worker/data/fetch/open_data.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/aws_credentials.h"
#include "base/object_store/object_url.h"
#include "base/object_store/open_object_store.h"
#include "base/object_store/retrier.h"
#include "base/obs/log.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "worker/data/by_file_data_set.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/fetch/downloader.h"
#include "worker/data/fetch/fetched_files.h"
#include "worker/data/fetch/shard_cache.h"
#include "worker/data/file_source.h"

namespace atl::worker {
namespace {

constexpr absl::Duration kManifestPatience = absl::Hours(2);
// Short: longer waits are logged here.
constexpr RetryBudget kRetryBudget = {.attempt_count_max = 5,
                                      .time_max = absl::Seconds(30)};

absl::StatusOr<Manifest> ReadFrom(ObjectStore& store, const std::string& name) {
  std::string text;
  RETURN_IF_ERROR(store.Read(name, {}, [&](absl::string_view bytes) {
    if (static_cast<int64_t>(text.size() + bytes.size()) >
        Manifest::kTextBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest ", store.GetUrl(name), " has more than ",
                       Manifest::kTextBytesMax, " bytes"));
    }
    absl::StrAppend(&text, bytes);
    return absl::OkStatus();
  }));
  return ParseManifest(text, store.GetUrl(name));
}

// The files of a manifest in a directory of this machine. They are read in
// place, and checked when they are opened for the first time.
class LocalFiles : public FileSource {
 public:
  LocalFiles(std::vector<ManifestFile> files, std::string directory)
      : files_(std::move(files)),
        directory_(std::move(directory)),
        is_checked_(files_.size(), false) {}

  absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) override {
    const ManifestFile& file = files_[index];
    const std::string path = JoinObjectName(directory_, file.path);
    ASSIGN_OR_RETURN(DataFileReader opened, DataFileReader::Open(path));
    const auto reader =
        std::make_shared<const DataFileReader>(std::move(opened));
    {
      MutexLock lock(&mutex_);
      if (is_checked_[index]) return reader;
    }
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    std::string sha256;
    if (!error && static_cast<int64_t>(size) == file.size_bytes) {
      ASSIGN_OR_RETURN(sha256, reader->ComputeSha256(file.size_bytes));
    }
    if (sha256 != file.sha256) {
      return absl::DataLossError(
          absl::StrCat("data file ", path,
                       " is not the one that was published: its size or "
                       "its SHA-256 differs; copy it again"));
    }
    MutexLock lock(&mutex_);
    is_checked_[index] = true;
    return reader;
  }

 private:
  const std::vector<ManifestFile> files_;
  const std::string directory_;
  Mutex mutex_;
  std::vector<bool> is_checked_ ABSL_GUARDED_BY(mutex_);  // By index.
};

// Waits; ends early if `stop` is requested.
void Pause(const std::stop_token& stop, absl::Duration duration) {
  std::promise<void> stopped;
  const std::stop_callback wake(stop, [&] { stopped.set_value(); });
  stopped.get_future().wait_for(absl::ToChronoNanoseconds(duration));
}

absl::StatusOr<Manifest> ReadPatiently(const ManifestUrl& url,
                                       const DataOptions& options) {
  const auto cancelled = [stop = options.stop] {
    return stop.stop_requested();
  };
  const absl::Time give_up = SystemClock().Now() + kManifestPatience;
  absl::Duration wait = absl::Seconds(1);
  while (true) {
    auto store = options.open_store(url.directory_url, cancelled);
    absl::StatusOr<Manifest> manifest =
        store.ok() ? ReadFrom(**store, url.name) : store.status();
    if (!IsAway(manifest.status()) ||
        SystemClock().Now() >= give_up) {
      return manifest;
    }
    LOG(WARNING) << "waits for the manifest of the data, next try in " << wait
                 << ": " << manifest.status().message();
    Pause(options.stop, wait);
    if (cancelled()) {
      return absl::CancelledError(
          "stopped while waiting for the manifest of the data");
    }
    wait = std::min(2 * wait, Downloader::kBackoffMax);
  }
}

// The manifest in the cache, if it is the run's.
std::optional<Manifest> FindManifest(ShardCache& cache,
                                     const std::string& fingerprint) {
  if (fingerprint.empty()) return std::nullopt;
  const absl::StatusOr<std::string> text = cache.ReadManifestText(fingerprint);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<Manifest> manifest = ParseManifest(*text, fingerprint);
  if (!manifest.ok() || ComputeFingerprint(*manifest) != fingerprint) {
    return std::nullopt;
  }
  return *std::move(manifest);
}

absl::StatusOr<Manifest> FindOrReadManifest(const v1::DataSpec& spec,
                                            const ManifestUrl& url,
                                            const DataOptions& options,
                                            ShardCache& cache) {
  if (auto found = FindManifest(cache, spec.fingerprint())) return *found;
  ASSIGN_OR_RETURN(const Manifest manifest, ReadPatiently(url, options));
  const std::string fingerprint = ComputeFingerprint(manifest);
  // Another one is refused by the run, and must not fill the disk.
  if (fingerprint != spec.fingerprint()) return manifest;
  const absl::Status kept =
      cache.WriteManifestText(fingerprint, WriteManifest(manifest));
  if (!kept.ok()) LOG(WARNING) << "manifest is not kept: " << kept.message();
  return manifest;
}

absl::StatusOr<std::unique_ptr<DataSet>> OpenLocal(
    const v1::DataSpec& spec, const std::string& directory,
    const std::string& manifest_name) {
  const std::string path = JoinObjectName(directory, manifest_name);
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(PosixFileSystem(), path, Manifest::kTextBytesMax));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path));
  auto files = std::make_unique<LocalFiles>(manifest.files, directory);
  return MakeByFileDataSet(spec, std::move(manifest), std::move(files));
}

}  // namespace

StoreOpener MakeStoreOpener(StoreAccess access) {
  return [access = std::move(access)](const std::string& url,
                                      std::function<bool()> cancelled)
             -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    ObjectStoreOptions options;
    options.environment = access.environment;
    options.proxy = access.proxy;
    if (access.dial_policy) options.dial_policy = access.dial_policy();
    options.waiting.cancelled = std::move(cancelled);
    options.retry_budget = kRetryBudget;
    if (absl::StartsWith(url, "https://")) {
      if (access.read_authorities) {
        ASSIGN_OR_RETURN(options.ca_pem, access.read_authorities());
      }
      options.bearer_token = access.data_token;
    }
    if (absl::StartsWith(url, "s3://") && access.sign_url &&
        !HasAwsCredentials(access.environment)) {
      return MakeSignedStore(url, access.sign_url,
                             [options](const std::string& signed_url) {
                               return OpenObjectStore(signed_url, options);
                             });
    }
    return OpenObjectStore(url, options);
  };
}

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenStoreOfUrl(
    const std::string& url, std::function<bool()> cancelled) {
  return MakeStoreOpener(StoreAccess{})(url, std::move(cancelled));
}

absl::StatusOr<ManifestUrl> ParseManifestUrl(const std::string& url) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", RedactUrl(url), "\" is not the URL of a manifest: ", what,
        "; `atoll data publish` prints it"));
  };
  ASSIGN_OR_RETURN(const ObjectUrl parsed, ParseObjectUrl(url));
  if (parsed.store == ObjectUrl::Store::kHttp && !parsed.http.query.empty()) {
    return wrong("it has a query, which would be in every island's plan");
  }
  const size_t slash = url.rfind('/');
  ManifestUrl out{url.substr(0, slash), url.substr(slash + 1)};
  const bool is_plain =
      !out.name.empty() && out.name[0] != '.' &&
      std::all_of(out.name.begin(), out.name.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
      });
  if (!is_plain) {
    return wrong(
        "its last part is a file name of letters, digits, '.', '-' and '_'");
  }
  // "file://" and "s3://" have no directory without their slash.
  if (out.directory_url.back() == '/') out.directory_url += '/';
  if (!ParseObjectUrl(out.directory_url).ok()) {
    return wrong("it names no directory");
  }
  return out;
}

absl::StatusOr<Manifest> ReadManifest(const std::string& url,
                                      const StoreOpener& open_store) {
  ASSIGN_OR_RETURN(const ManifestUrl at, ParseManifestUrl(url));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   open_store(at.directory_url, [] { return false; }));
  return ReadFrom(*store, at.name);
}

absl::StatusOr<std::unique_ptr<DataSet>> OpenData(const v1::DataSpec& spec,
                                                  const DataOptions& options) {
  if (spec.url().empty()) return DataSet::Open(spec, options.path);
  ASSIGN_OR_RETURN(const ManifestUrl url, ParseManifestUrl(spec.url()));
  if (!options.path.empty()) return OpenLocal(spec, options.path, url.name);
  if (options.cache_directory.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data by URL needs a cache directory: ", RedactUrl(spec.url()),
        "; give --data-cache"));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<ShardCache> cache,
      ShardCache::Open(options.cache_directory, options.cache_bytes_max,
                       PosixFileSystem()));
  ASSIGN_OR_RETURN(Manifest manifest,
                   FindOrReadManifest(spec, url, options, *cache));
  DownloaderOptions download;
  download.bytes_per_second = options.bytes_per_second;
  download.open_store =
      [open = options.open_store,
       directory = url.directory_url](std::function<bool()> cancelled) {
        return open(directory, std::move(cancelled));
      };
  auto files = std::make_unique<FetchedFiles>(manifest.files, std::move(cache),
                                              std::move(download), options.stop,
                                              options.came);
  return MakeByFileDataSet(spec, std::move(manifest), std::move(files));
}

}  // namespace atl::worker
