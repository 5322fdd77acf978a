#include "base/mirror/part_format.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::ElementsAre;

class PartFormatTest : public ::testing::Test {
 protected:
  static PartIdentity Part(int32_t shard, int32_t fragment) {
    return {.place = {"0123456789abcdef0123456789abcdef", 2, 5},
            .shard = shard,
            .shard_count = kSmallShardCount,
            .fragment = fragment,
            .version = 1,
            .array_names = ArrayNames(1, true)};
  }

  const RunLayout layout_ = *RunLayout::Create(SmallLayout());
};

TEST_F(PartFormatTest, ArraysAreNamedInTheOrderOfAVersionFile) {
  EXPECT_THAT(ArrayNames(0, false), ElementsAre("theta"));
  EXPECT_THAT(ArrayNames(2, true), ElementsAre("theta", "m", "v", "replica"));
}

TEST_F(PartFormatTest, TheRangesOfAllPartsAreTheModel) {
  std::vector<int> count(layout_.element_count());
  int empty_count = 0;
  for (int32_t shard = 0; shard < kSmallShardCount; ++shard) {
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      const PartIdentity part = Part(shard, f);
      int64_t element_count = 0;
      for (const PartRange& range : PartRanges(layout_, part)) {
        element_count += range.elements.size();
        for (int64_t i = range.elements.begin; i < range.elements.end; ++i) {
          ++count[layout_.tensors()[range.tensor].model_offset + i];
        }
      }
      EXPECT_EQ(element_count, PartElementCount(layout_, part));
      empty_count += element_count == 0;
    }
  }
  EXPECT_EQ(std::set<int>(count.begin(), count.end()), std::set<int>{1});
  EXPECT_EQ(empty_count, 1);
}

TEST_F(PartFormatTest, APartIsASafetensorsFile) {
  const PartIdentity part = Part(0, 0);
  const std::string bytes = SmallPart(layout_, part);
  uint64_t json_bytes = 0;
  std::memcpy(&json_bytes, bytes.data(), sizeof(json_bytes));
  const std::string json = bytes.substr(sizeof(json_bytes), json_bytes);
  const auto data_bytes = static_cast<int64_t>(bytes.size() - json_bytes - 8);
  const auto entries = ParseSafetensorsHeader(json, data_bytes);
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : *entries) names.push_back(entry.name);
  EXPECT_THAT(names,
              ElementsAre("theta/t1", "theta/t3", "theta/t4", "m/t1", "m/t3",
                          "m/t4", "replica/t1", "replica/t3", "replica/t4"));
  EXPECT_TRUE(absl::StrContains(json, R"(\"t1\":[0,10000])")) << json;
}

TEST_F(PartFormatTest, ThePartsOfTwoPlacesDiffer) {
  const std::string header = PartHeader(layout_, Part(0, 0));
  PartIdentity other = Part(0, 0);
  other.version = 2;
  EXPECT_NE(PartHeader(layout_, other), header);
  other = Part(0, 0);
  other.place.commit_seq = 6;
  EXPECT_NE(PartHeader(layout_, other), header);
  EXPECT_NE(PartHeader(layout_, Part(1, 0)), header);
}

}  // namespace
}  // namespace atl::mirror
