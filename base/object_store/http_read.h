// Reads ranges of objects over HTTP. A transfer that breaks is resumed at the
// byte where it stopped, if the object is still the same. Thread-compatible.

#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/object_store/http_client.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"
#include "base/time/clock.h"

namespace atl {

// The means by which a store over HTTP sends.
struct HttpTransport {
  std::unique_ptr<HttpClient> client;
  Retrier retrier;
  const Clock& wall_clock;  // The time as servers have it.
};

// Makes the GET request of an object, with `headers`. Called at each attempt:
// signatures have a time.
using MakeGetRequest =
    absl::FunctionRef<absl::StatusOr<HttpRequest>(HttpHeaders headers)>;

// As ObjectStore::Read. `url` names the object in messages.
absl::Status ReadOverHttp(HttpTransport& transport, std::string url,
                          const ReadRange& range, MakeGetRequest make_request,
                          ObjectSink sink);

}  // namespace atl
