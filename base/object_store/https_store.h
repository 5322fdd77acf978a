// Objects of an HTTPS server, read only: List and Write are UNIMPLEMENTED.
// Follows redirects to https://. Thread-compatible.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/object_store/http_read.h"
#include "base/object_store/object_store.h"
#include "base/object_store/object_url.h"

namespace atl {

// `bearer_token` may be empty.
// INVALID_ARGUMENT: a token for http://.
absl::StatusOr<std::unique_ptr<ObjectStore>> MakeHttpsStore(
    const HttpUrl& url, std::string bearer_token,
    std::unique_ptr<HttpTransport> transport);

}  // namespace atl
