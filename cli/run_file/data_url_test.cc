#include "cli/run_file/data_url.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::DataSpec Preset() {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path("text");
  data.set_seed(1);
  data.set_fingerprint("f");
  data.set_validation_fraction(0.05);
  data.set_data_shard_count(4);
  return data;
}

TEST(DataUrlTest, AUrlReplacesThePresetsData) {
  v1::DataSpec data = Preset();
  DropOtherData({"data.seed"}, &data);
  EXPECT_EQ(data.DebugString(), Preset().DebugString());
  data.set_url("s3://bucket/manifest.json");
  data.set_order(v1::DATA_ORDER_BY_FILE);
  DropOtherData({"data.url", "data.order"}, &data);
  v1::DataSpec left;
  left.set_data_shard_count(4);
  left.set_url("s3://bucket/manifest.json");
  left.set_order(v1::DATA_ORDER_BY_FILE);
  EXPECT_EQ(data.DebugString(), left.DebugString());
  EXPECT_THAT(FindDataFaults(data), IsEmpty());
}

TEST(DataUrlTest, SaysWhichKeysAUrlExcludes) {
  v1::DataSpec data = Preset();
  data.set_url("s3://bucket/manifest.json");
  DropOtherData({"data.url", "data.path", "data.seed", "data.format",
                 "data.validation_fraction"},
                &data);
  EXPECT_EQ(data.format(), v1::DATA_FORMAT_BYTES);
  EXPECT_THAT(FindDataFaults(data),
              ElementsAre(HasSubstr("exclude each other"),
                          HasSubstr("'data.order' must be \"by_file\""),
                          HasSubstr("'data.validation_fraction'"),
                          HasSubstr("'data.seed'")));
}

TEST(DataUrlTest, OnlyAManifestHasAnOrderOfFiles) {
  v1::DataSpec data = Preset();
  EXPECT_THAT(FindDataFaults(data), IsEmpty());
  data.set_order(v1::DATA_ORDER_BY_FILE);
  EXPECT_THAT(FindDataFaults(data), ElementsAre(HasSubstr("needs data.url")));
}

}  // namespace
}  // namespace atl::cli
