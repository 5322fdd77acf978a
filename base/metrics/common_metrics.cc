#include "base/metrics/common_metrics.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/statvfs.h>

#include <ctime>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

// How long a scrape waits for a disk.
constexpr absl::Duration kDiskWait = absl::Milliseconds(250);

// Families that a disk must be asked for. While the disk does not answer,
// Collect returns the last ones. At most one thread waits for the disk.
class DiskCollectable : public prometheus::Collectable {
 public:
  // `read` runs on a thread of its own, which may outlive this object. nullopt:
  // the last families stay.
  explicit DiskCollectable(std::function<std::optional<Families>()> read)
      : state_(std::make_shared<State>()), read_(std::move(read)) {}

  Families Collect() const override {
    State& state = *state_;
    MutexLock lock(&state.mutex);
    if (!state.reading) StartRead(state);
    // From the read's start: while a disk hangs, only the first scrape waits.
    state.done.AwaitWithTimeout(
        &state.mutex, state.start + kDiskWait - SystemClock().Now(),
        [&] { return !state.reading; });
    return state.last;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar done;
    bool reading = false;
    absl::Time start;  // When the newest read started.
    Families last;
  };

  // Starts a read. Requires: state.mutex is held.
  void StartRead(State& state) const {
    // A thread that waits for a disk cannot be joined in bounded time, so it is
    // detached. It owns all that it touches.
    try {
      std::thread([held = state_, read = read_] {
        std::optional<Families> families = read();
        MutexLock lock(&held->mutex);
        if (families.has_value()) held->last = *std::move(families);
        held->reading = false;
        held->done.SignalAll();
      }).detach();
      state.reading = true;
      state.start = SystemClock().Now();
      // style-ok(call): std::thread throws if no thread can be had.
    } catch (const std::system_error&) {
    }
  }

  const std::shared_ptr<State> state_;
  const std::function<std::optional<Families>()> read_;
};

std::optional<Families> ReadDisk(const std::string& directory) {
  struct statvfs fs = {};
  if (statvfs(directory.c_str(), &fs) != 0) return std::nullopt;
  const double block_bytes = static_cast<double>(fs.f_frsize);
  return Families{
      MakeGauges("atoll_disk_free_bytes",
                 "Free space of the data directory's file system.",
                 {{{}, static_cast<double>(fs.f_bavail) * block_bytes}}),
      MakeGauges("atoll_disk_size_bytes",
                 "Size of the data directory's file system.",
                 {{{}, static_cast<double>(fs.f_blocks) * block_bytes}})};
}

std::optional<Families> ReadExpiry(const std::string& path) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(
      BIO_new_file(path.c_str(), "r"), BIO_free);
  if (file == nullptr) return std::nullopt;
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
  std::tm expiry = {};
  if (certificate == nullptr ||
      ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &expiry) != 1) {
    return std::nullopt;
  }
  return Families{MakeGauges(
      "atoll_certificate_expiry_timestamp_seconds",
      "When this program's certificate expires, in seconds since the epoch.",
      {{{}, static_cast<double>(timegm(&expiry))}})};
}

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeDiskMetrics(
    std::string directory) {
  return std::make_shared<DiskCollectable>(
      [directory = std::move(directory)] { return ReadDisk(directory); });
}

std::shared_ptr<prometheus::Collectable> MakeCertificateMetrics(
    std::string path) {
  return std::make_shared<DiskCollectable>(
      [path = std::move(path)]() -> std::optional<Families> {
        if (path.empty()) return std::nullopt;
        return ReadExpiry(path);
      });
}

prometheus::Histogram& MakeFsyncHistogram(Metrics& metrics) {
  return prometheus::BuildHistogram()
      .Name("atoll_fsync_duration_seconds")
      .Help("How long the disk took to make a write durable.")
      .Register(metrics.registry())
      .Add({}, prometheus::Histogram::BucketBoundaries{
                   1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30});
}

const prometheus::Histogram::BucketBoundaries& RoundDurationBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      0.01, 0.03, 0.1, 0.3,  1,    3,    10,    30,
      60,   180,  600, 1800, 3600, 7200, 21600, 86400};
  return buckets;
}

}  // namespace atl
