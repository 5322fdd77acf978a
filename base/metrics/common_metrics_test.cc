#include "base/metrics/common_metrics.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

// Expires at 2033-05-18T03:33:20Z.
constexpr char kCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBBDCBrAIBATAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDAR0ZXN0MB4XDTAxMDkw
OTAxNDY0MFoXDTMzMDUxODAzMzMyMFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABPDX38u9YGbyU7bNuAunEMnWoI5BIKMsEfGie7s7
RMmIbIojYk2yt/1592DrfioA9m80VjqtvFgkHzbCgXAMq04wCgYIKoZIzj0EAwID
RwAwRAIgRHevjHUsruwN5GwwUJrmxr5Nzau162A937V1S17fDmQCIBGhhK7t5Qdy
DXeRQNzGD4UlfZoQJSM9hjo2Nqi9Ldf4
-----END CERTIFICATE-----
)";

double OnlyGauge(const prometheus::MetricFamily& family) {
  EXPECT_EQ(family.metric.size(), 1u);
  return family.metric.at(0).gauge.value;
}

TEST(CommonMetricsTest, TellsFreeAndTotalDiskSpace) {
  const auto families = MakeDiskMetrics(::testing::TempDir())->Collect();
  ASSERT_EQ(families.size(), 2u);
  EXPECT_EQ(families[0].name, "atoll_disk_free_bytes");
  EXPECT_EQ(families[1].name, "atoll_disk_size_bytes");
  EXPECT_GT(OnlyGauge(families[1]), 0);
  EXPECT_LE(OnlyGauge(families[0]), OnlyGauge(families[1]));
  EXPECT_TRUE(MakeDiskMetrics("/nowhere/at/all")->Collect().empty());
}

TEST(CommonMetricsTest, ReadsACertificateAtEachScrape) {
  const std::string path = ::testing::TempDir() + "/certificate.pem";
  std::remove(path.c_str());
  const auto source = MakeCertificateMetrics(path);
  EXPECT_TRUE(source->Collect().empty());
  std::ofstream(path) << "not a certificate\n";
  EXPECT_TRUE(source->Collect().empty());
  std::ofstream(path) << kCertificate;
  const auto families = source->Collect();
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].name, "atoll_certificate_expiry_timestamp_seconds");
  EXPECT_EQ(OnlyGauge(families[0]), 2000000000);
}

TEST(CommonMetricsTest, SharesOneFsyncHistogram) {
  Metrics metrics;
  MakeFsyncHistogram(metrics).Observe(0.002);
  MakeFsyncHistogram(metrics).Observe(0.002);
  for (const auto& family : metrics.Collect()) {
    if (family.name != "atoll_fsync_duration_seconds") continue;
    ASSERT_EQ(family.metric.size(), 1u);
    EXPECT_EQ(family.metric[0].histogram.sample_count, 2u);
    return;
  }
  FAIL() << "no histogram";
}

}  // namespace
}  // namespace atl
