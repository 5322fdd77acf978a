#include "base/safetensors/safetensors.h"

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

absl::Status Parse(const std::string& json, int64_t data_bytes) {
  return ParseSafetensorsHeader(json, data_bytes).status();
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  std::vector<SafetensorsEntry> entries = {{"b", "", {2, 3}}, {"a", "", {1}}};
  const std::string preamble = SafetensorsPreamble(entries);
  EXPECT_EQ(preamble.size() % 8, 0);
  const auto parsed = ParseSafetensorsHeader(preamble.substr(8), 28);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, entries);
}

TEST(SafetensorsTest, ReadsAHeaderOfTheReferenceImplementation) {
  const auto parsed = ParseSafetensorsHeader(
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"BF16","shape":[2,2],)"
      R"("data_offsets":[0,8]},"s":{"dtype":"F32","shape":[],)"
      R"("data_offsets":[8,12]}}     )",
      12);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), 2);
  EXPECT_EQ((*parsed)[0].dtype, "BF16");
}

TEST(SafetensorsTest, RefusesHeadersThatLie) {
  const std::string good =
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_TRUE(Parse(good, 8).ok());
  EXPECT_FALSE(Parse(good, 9).ok());
  EXPECT_FALSE(Parse(good, 7).ok());
  for (const char* bad : {
           R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
           R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
           R"({"x":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})",
           R"({"x":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})",
           R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
           R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
           R"({"x":{"dtype":"F32","shape":[2]}})",
           R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],)"
           R"("data_offsets":[0,8]}})",
           R"({"x":{"dtype":"F32","shape":[2],)"
           R"("data_offsets":[0,18446744073709551615]}})",
           R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
           R"("x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
           R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           R"({"x":3})", R"([])", R"({)", "", "null",
           R"([[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]])",
       }) {
    EXPECT_FALSE(Parse(bad, 8).ok()) << bad;
  }
}

TEST(SafetensorsTest, SurvivesRandomChanges) {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string good =
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int n = 1 + random() % 4; n > 0; --n) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    // Any answer but a crash.
    Parse(bad, 8).IgnoreError();
  }
}

}  // namespace
}  // namespace atl
