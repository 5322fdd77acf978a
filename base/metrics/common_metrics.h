// Families that several programs have. Thread-safe.

#pragma once

#include <memory>
#include <string>

#include "base/metrics/metrics.h"
#include "prometheus/collectable.h"
#include "prometheus/histogram.h"

namespace atl {

// atoll_disk_free_bytes and atoll_disk_size_bytes of the file system of
// `directory`, as statvfs tells an unprivileged process. A file system that
// does not answer keeps its last values.
std::shared_ptr<prometheus::Collectable> MakeDiskMetrics(
    std::string directory);

// atoll_certificate_expiry_timestamp_seconds of the first certificate of the
// PEM file, read again at each scrape. A file without one keeps the last value;
// no family if `path` is empty.
std::shared_ptr<prometheus::Collectable> MakeCertificateMetrics(
    std::string path);

// atoll_fsync_duration_seconds: buckets from 100 us to 30 s. Lives as long as
// `metrics`.
prometheus::Histogram& MakeFsyncHistogram(Metrics& metrics);

// The buckets of atoll_round_duration_seconds{phase}: 10 ms to a day.
const prometheus::Histogram::BucketBoundaries& RoundDurationBuckets();

}  // namespace atl
