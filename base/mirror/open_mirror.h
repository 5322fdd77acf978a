// Opens the mirror that a program's --mirror names. Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/host_port/proxy.h"
#include "base/object_store/aws_credentials.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"

namespace atl::mirror {

inline constexpr char kMirrorFlagHelp[] =
    "s3://BUCKET[/PREFIX] or file:///DIR, one for the whole cluster, to which "
    "checkpoints of runs with checkpoint.mirror are copied; credentials for s3 "
    "come from AWS_*. Default: no mirror";

// A reason to refuse the URL; empty: it names a store that can be written. The
// empty URL is no mirror.
std::string CheckMirrorUrl(absl::string_view url);

// Opens the mirror once more. The store's waits are `waiting`.
using MirrorOpener = std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(
    const Waiting& waiting)>;

// Takes credentials for s3:// from `environment`, at each opening. Requires:
// CheckMirrorUrl accepts the URL, which is not empty.
MirrorOpener MakeMirrorOpener(const std::string& url, Environment environment,
                              const Proxy& proxy);

}  // namespace atl::mirror
