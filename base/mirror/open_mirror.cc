#include "base/mirror/open_mirror.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/object_store/open_object_store.h"

namespace atl::mirror {
namespace {

// Its users try again later, so one call need not wait long.
constexpr RetryBudget kRetryBudget = {.attempt_count_max = 6,
                                      .time_max = absl::Minutes(1)};

}  // namespace

std::string CheckMirrorUrl(absl::string_view url) {
  if (url.empty()) return "";
  const absl::StatusOr<ObjectUrl> parsed = ParseObjectUrl(url);
  if (!parsed.ok()) return std::string(parsed.status().message());
  if (parsed->store == ObjectUrl::Store::kHttp) {
    return absl::StrCat(RedactUrl(url),
                        " cannot be written: give an s3:// or file:// URL");
  }
  return "";
}

MirrorOpener MakeMirrorOpener(const std::string& url, Environment environment,
                              const Proxy& proxy) {
  return [url, environment = std::move(environment),
          proxy](const Waiting& waiting) {
    ObjectStoreOptions options;
    options.environment = environment;
    options.proxy = proxy;
    options.retry_budget = kRetryBudget;
    options.waiting = waiting;
    return OpenObjectStore(url, options);
  };
}

}  // namespace atl::mirror
