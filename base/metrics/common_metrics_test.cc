#include "base/metrics/common_metrics.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// Self-signed; expires at 2030-01-02 03:04:05 UTC.
constexpr char kCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBBTCBrAIBATAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDAR0ZXN0MB4XDTI2MDEw
MTAwMDAwMFoXDTMwMDEwMjAzMDQwNVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABBalmLLrefAYj/Z5tS/J7seMuIcTiuAyIajZ6Aaw
n82UJR9gQyW/dTKLcOj2vZBic7f4+47M4LBdqHnX+bfvvZswCgYIKoZIzj0EAwID
SAAwRQIgSDGgRKVKOw9/ro3Ic2/8NG5tGEAJ5YFr1FrxVaBmfp8CIQDoXkO5j7JD
k4GRSmhRZXa1KyDq4dIDEftb4zsQXb5z1Q==
-----END CERTIFICATE-----)";
constexpr double kExpirySeconds = 1893553445;

std::string Name() {
  return absl::StrCat(
      ::testing::TempDir(), "/",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
}

void Write(const std::string& path, const char* text) {
  std::ofstream(path) << text;
}

TEST(CommonMetricsTest, ShowsTheSpaceOfADirectorysDisk) {
  const auto disk = MakeDiskMetrics(::testing::TempDir());
  const auto families = disk->Collect();
  ASSERT_EQ(families.size(), 2u);
  EXPECT_EQ(families[0].name, "atoll_disk_free_bytes");
  EXPECT_EQ(families[1].name, "atoll_disk_size_bytes");
  EXPECT_GT(families[1].metric.at(0).gauge.value, 0);
  EXPECT_LE(families[0].metric.at(0).gauge.value,
            families[1].metric.at(0).gauge.value);
}

TEST(CommonMetricsTest, ADiskThatIsGoneKeepsItsLastSpace) {
  const std::string directory = Name();
  std::filesystem::create_directories(directory);
  const auto disk = MakeDiskMetrics(directory);
  EXPECT_EQ(disk->Collect().size(), 2u);
  std::filesystem::remove_all(directory);
  EXPECT_EQ(disk->Collect().size(), 2u);
  EXPECT_TRUE(MakeDiskMetrics(directory)->Collect().empty());
}

TEST(CommonMetricsTest, ShowsWhenACertificateExpiresAndFollowsItsFile) {
  const std::string path = Name();
  std::filesystem::remove(path);
  const auto certificate = MakeCertificateMetrics(path);
  EXPECT_TRUE(certificate->Collect().empty());
  Write(path, "not PEM");
  EXPECT_TRUE(certificate->Collect().empty());
  Write(path, kCertificate);
  const auto families = certificate->Collect();
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].name, "atoll_certificate_expiry_timestamp_seconds");
  EXPECT_EQ(families[0].metric.at(0).gauge.value, kExpirySeconds);
  EXPECT_TRUE(MakeCertificateMetrics("")->Collect().empty());
}

TEST(CommonMetricsTest, AReadThatDoesNotEndKeepsTheLastValue) {
  const std::string path = Name();
  std::filesystem::remove(path);
  Write(path, kCertificate);
  const auto certificate = MakeCertificateMetrics(path);
  ASSERT_EQ(certificate->Collect().size(), 1u);
  // To open a pipe for reading waits for a writer.
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const absl::Cleanup write = [&] { Write(path, ""); };
  // Only the first waits. If each did, the test would reach its time limit.
  for (int i = 0; i < 400; ++i) {
    const auto families = certificate->Collect();
    ASSERT_EQ(families.size(), 1u);
    EXPECT_EQ(families[0].metric.at(0).gauge.value, kExpirySeconds);
  }
}

TEST(CommonMetricsTest, TheFsyncHistogramIsOneForEachMetrics) {
  Metrics metrics;
  MakeFsyncHistogram(metrics).Observe(0.002);
  EXPECT_EQ(&MakeFsyncHistogram(metrics), &MakeFsyncHistogram(metrics));
  const auto families = metrics.registry().Collect();
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].name, "atoll_fsync_duration_seconds");
  const auto& histogram = families[0].metric.at(0).histogram;
  EXPECT_EQ(histogram.bucket.front().upper_bound, 1e-4);
  EXPECT_EQ(histogram.sample_count, 1u);
}

}  // namespace
}  // namespace atl
