#include <curl/curl.h>
#include <expat.h>
#include <microhttpd.h>
#include <omp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <xxhash.h>
#include <zstd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "prometheus/counter.h"
#include "prometheus/registry.h"
#include "rocksdb/db.h"
#include "toml++/toml.h"

namespace atl {
namespace {

TEST(LibrariesTest, LinksAbseil) {
  absl::flat_hash_map<std::string, int> map = {{"a", 1}};
  absl::btree_map<int, int> tree = {{1, 2}};
  absl::BitGen random;
  const absl::StatusOr<int> value = absl::NotFoundError("no such run");
  EXPECT_FALSE(value.ok());
  EXPECT_LT(absl::Uniform(random, 0, 10), 10);
  EXPECT_EQ(absl::StrCat(map["a"], tree[1]), "12");
  EXPECT_EQ(absl::StrFormat("%.2f", 1.5), "1.50");
  EXPECT_EQ(absl::FormatTime(absl::RFC3339_sec, absl::UnixEpoch(),
                             absl::UTCTimeZone()),
            "1970-01-01T00:00:00+00:00");
  EXPECT_THAT(map, ::testing::SizeIs(1));
}

TEST(LibrariesTest, LinksRocksDb) {
  const std::string path = ::testing::TempDir() + "/libraries_test_db";
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, path, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  ASSERT_TRUE(db->Put({}, "key", "value").ok());
  std::string value;
  ASSERT_TRUE(db->Get({}, "key", &value).ok());
  EXPECT_EQ(value, "value");
}

TEST(LibrariesTest, LinksOneDnn) {
  omp_set_num_threads(1);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  EXPECT_EQ(engine.get_kind(), dnnl::engine::kind::cpu);
}

TEST(LibrariesTest, LinksPrometheus) {
  prometheus::Registry registry;
  prometheus::BuildCounter()
      .Name("turns_total")
      .Register(registry)
      .Add({})
      .Increment();
  EXPECT_EQ(registry.Collect().at(0).metric.at(0).counter.value, 1);
}

TEST(LibrariesTest, LinksTheSmallOnes) {
  EXPECT_EQ(ZSTD_isError(ZSTD_compressBound(100)), 0u);
  EXPECT_NE(XXH3_64bits("a", 1), 0u);
  EXPECT_NE(EVP_sha256(), nullptr);
  EXPECT_NE(TLS_method(), nullptr);
  EXPECT_NE(HWY_TARGETS & HWY_AVX2, 0);
  EXPECT_NE(curl_version_info(CURLVERSION_NOW), nullptr);
  EXPECT_NE(XML_ExpatVersion(), nullptr);
  EXPECT_NE(MHD_get_version(), nullptr);
  EXPECT_EQ(nlohmann::json::parse("[1]", nullptr, false)[0], 1);
  const toml::parse_result table = toml::parse("a = 1");
  ASSERT_TRUE(table.succeeded());
  EXPECT_EQ(table.table()["a"].value_or(0), 1);
  EXPECT_TRUE(toml::parse("a = ").failed());
  CLI::App app("test");
  EXPECT_TRUE(app.get_options().size() > 0);
}

}  // namespace
}  // namespace atl
