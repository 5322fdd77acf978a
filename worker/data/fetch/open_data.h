// Opens the data of a run, wherever it is.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "base/host_port/proxy.h"
#include "base/object_store/dial_policy.h"
#include "base/object_store/object_store.h"
#include "worker/data/data_set.h"
#include "worker/data/fetch/signed_store.h"
#include "worker/data/manifest.h"

namespace atl::worker {

// Opens the store of a URL. Its calls end soon after `cancelled` is true.
using StoreOpener = std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(
    const std::string& url, std::function<bool()> cancelled)>;

// Opens stores of data that is not public, and limits which hosts they reach.
struct StoreAccess {
  // For URLs that a peer named: which hosts may be dialled, asked for whenever a
  // store is opened. Then no file is opened. Empty: the URLs are our own.
  std::function<DialPolicy()> dial_policy;
  // The value of a variable: AWS_* and HOME, for s3://. Empty: nothing is set.
  std::function<std::optional<std::string>(absl::string_view name)> environment;
  Proxy proxy;
  // For https://: PEM certificates that are trusted besides the system's, read
  // whenever a store is opened. Empty: none.
  std::function<absl::StatusOr<std::string>()> read_authorities;
  // For https://: the data token, asked for when a server demands it.
  std::function<std::string()> data_token;
  // For s3:// if `environment` has no credentials. Empty: URLs are not signed.
  SignUrl sign_url;
};

StoreOpener MakeStoreOpener(StoreAccess access);

// The same without any access, and without a proxy.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenStoreOfUrl(
    const std::string& url, std::function<bool()> cancelled);

inline constexpr int64_t kDataCacheBytesDefault = 20'000'000'000;

struct DataOptions {
  // The path to open here, as FindDataPlace decides (worker/data/local_data.h).
  // For data by URL, a directory with the manifest and the files: nothing is
  // fetched. Empty: the data comes by URL.
  std::string path;
  // For data by URL; islands of a machine may share it.
  std::string cache_directory;
  int64_t cache_bytes_max = kDataCacheBytesDefault;
  double bytes_per_second = 0;  // Download limit; 0: none.
  std::stop_token stop;         // Ends every wait, with CANCELLED.
  StoreOpener open_store = OpenStoreOfUrl;
  // Called from any thread when a file that is needed is here, or cannot come.
  // May be empty.
  std::function<void()> came;
};

// The URL of a manifest in two parts: its directory's and its name.
struct ManifestUrl {
  std::string directory_url;
  std::string name;
};
// INVALID_ARGUMENT: not a URL that ParseObjectUrl accepts, one with a query, or
// its last part is not a plain file name.
absl::StatusOr<ManifestUrl> ParseManifestUrl(const std::string& url);

// Reads the manifest at `url`, once. Errors as ParseManifestUrl, ParseManifest
// and the store's.
absl::StatusOr<Manifest> ReadManifest(const std::string& url,
                                      const StoreOpener& open_store);

// Opens the data of `spec`. Data at a path is opened as by DataSet::Open. For
// data by URL only the manifest is read here; the call waits up to two hours
// for an unreachable source. The files are fetched when they are read, unless
// they are local.
//
// INVALID_ARGUMENT: also a URL without a path here and without a cache
// directory. Others as DataSet::Open, ReadManifest and MakeByFileDataSet.
absl::StatusOr<std::unique_ptr<DataSet>> OpenData(const v1::DataSpec& spec,
                                                  const DataOptions& options);

}  // namespace atl::worker
