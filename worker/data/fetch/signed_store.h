// Objects that are read by signed URLs, which somebody else makes: this machine
// has no credentials for them. A URL is asked for at each read, and again when
// the server refuses it in the middle, because it has expired.
//
// A signed URL is a secret: no message has one. It is https://, or http:// where
// the caller's store allows that: a URL of another scheme would name a file or a
// bucket of this machine's choice. Thread-compatible.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/object_store/object_store.h"

namespace atl::worker {

// An https:// URL that reads `path`, relative to the directory of the run's
// manifest, for a while.
using SignUrl =
    std::function<absl::StatusOr<std::string>(const std::string& path)>;

// `directory_url` names objects in messages. `open` opens the store of a signed
// URL. List and Write are UNIMPLEMENTED. A Read that had to ask again may pass
// bytes of two versions of an object: check what it reads.
std::unique_ptr<ObjectStore> MakeSignedStore(
    std::string directory_url, SignUrl sign,
    std::function<
        absl::StatusOr<std::unique_ptr<ObjectStore>>(const std::string& url)>
        open);

}  // namespace atl::worker
