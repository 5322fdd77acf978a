// Makes signed URLs of runs' data, for islands without credentials. It may have
// to wait for the server of the credentials, so a thread of its own does it.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "base/object_store/aws_credentials.h"

namespace atl::coordinator {

// How long a URL is good. Longer than most files take; an island asks again.
inline constexpr absl::Duration kDataUrlLifetime = absl::Hours(1);
inline constexpr int kDataPathsMax = 64;

// OK if `paths` may be signed: 1 to kDataPathsMax names below a directory.
// INVALID_ARGUMENT: they are not.
absl::Status CheckDataPaths(const std::vector<std::string>& paths);

class DataUrlSigner {
 public:
  using Done =
      std::function<void(absl::StatusOr<v1::SignDataUrlsResponse> response)>;

  virtual ~DataUrlSigner() = default;

  // Signs `paths`, relative to the directory of the manifest at `manifest_url`.
  // Calls `done` once, on this thread or another one. Requires: CheckDataPaths
  // accepts them. Errors: as IslandService.SignDataUrls.
  virtual void Sign(const std::string& manifest_url,
                    std::vector<std::string> paths, Done done) = 0;

  // Ends the calls that wait, with UNAVAILABLE, and all later ones.
  virtual void Stop() {}
};

// Signs with the credentials that `environment` names. Its end waits for calls
// that have begun, and cuts their waits.
std::unique_ptr<DataUrlSigner> MakeDataUrlSigner(Environment environment);

}  // namespace atl::coordinator
