#include "base/metrics/common_metrics.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/statvfs.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

namespace atl {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;

class DiskMetrics : public prometheus::Collectable {
 public:
  explicit DiskMetrics(std::string directory)
      : directory_(std::move(directory)) {}

  std::vector<MetricFamily> Collect() const override {
    struct statvfs space = {};
    if (statvfs(directory_.c_str(), &space) != 0) return {};
    const double unit = static_cast<double>(space.f_frsize);
    return {
        MakeGauges("atoll_disk_free_bytes",
                   "Free space of the data directory's file system, in bytes.",
                   {{{}, static_cast<double>(space.f_bavail) * unit}}),
        MakeGauges("atoll_disk_size_bytes",
                   "Size of the data directory's file system, in bytes.",
                   {{{}, static_cast<double>(space.f_blocks) * unit}})};
  }

 private:
  const std::string directory_;
};

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

class CertificateMetrics : public prometheus::Collectable {
 public:
  explicit CertificateMetrics(std::string path) : path_(std::move(path)) {}

  std::vector<MetricFamily> Collect() const override {
    const std::unique_ptr<std::FILE, Close> file(
        std::fopen(path_.c_str(), "re"));
    if (file == nullptr) return {};
    const std::unique_ptr<X509, Close> certificate(
        PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
    std::tm end = {};
    if (certificate == nullptr ||
        ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
      return {};
    }
    return {MakeGauges(
        "atoll_certificate_expiry_timestamp_seconds",
        "When the certificate expires, in seconds since the epoch.",
        {{{}, static_cast<double>(timegm(&end))}})};
  }

 private:
  const std::string path_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeDiskMetrics(
    std::string directory) {
  return std::make_shared<DiskMetrics>(std::move(directory));
}

std::shared_ptr<prometheus::Collectable> MakeCertificateMetrics(
    std::string path) {
  return std::make_shared<CertificateMetrics>(std::move(path));
}

Histogram& MakeFsyncHistogram(Metrics& metrics) {
  return prometheus::BuildHistogram()
      .Name("atoll_fsync_duration_seconds")
      .Help("Time that the disk took to make records or contributions durable.")
      .Register(metrics.registry())
      .Add({}, Histogram::BucketBoundaries{0.0001, 0.0003, 0.001, 0.003, 0.01,
                                           0.03, 0.1, 0.3, 1, 3, 10, 30});
}

const Histogram::BucketBoundaries& RoundDurationBuckets() {
  static const auto* const kBuckets = new Histogram::BucketBoundaries{
      0.01, 0.03, 0.1, 0.3, 1,    3,    10,    20,    30,   60,
      120,  300,  600, 1200, 1800, 3600, 7200, 14400, 43200, 86400};
  return *kBuckets;
}

}  // namespace atl
