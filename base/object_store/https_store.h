// Objects of an HTTPS server, read only: List and Write are UNIMPLEMENTED.
// Follows redirects to https://. Thread-compatible.

#pragma once

#include <memory>

#include "base/object_store/bearer_client.h"
#include "base/object_store/http_read.h"
#include "base/object_store/object_store.h"
#include "base/object_store/object_url.h"

namespace atl {

// `bearer_token` may be empty; http:// never gets it.
std::unique_ptr<ObjectStore> MakeHttpsStore(
    const HttpUrl& url, BearerToken bearer_token,
    std::unique_ptr<HttpTransport> transport);

}  // namespace atl
