#include "server/store/manifest.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/testing/mutator.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

Manifest Example() {
  Manifest manifest;
  manifest.run_id = "run";
  manifest.run_epoch = 2;
  manifest.pin_id = "round-4";
  manifest.commit_seq = int64_t{1} << 60;
  manifest.layout_fingerprint = 0xFEDCBA9876543210;
  manifest.shard = 1;
  manifest.shard_count = 3;
  manifest.parent_pin_id = "round-2";
  manifest.parent_sha256 = "ab";
  manifest.files = {{0, 4, 7, "12", "34", "versions/f0-v4.ver", 4096, "cd"},
                    {2, 4, 9, "56", "78", "versions/f2-v4.ver", 8192, "ef"}};
  return manifest;
}

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string text = ToJson(Example());
  const auto read = ParseManifest(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), text);
  EXPECT_EQ(read->commit_seq, int64_t{1} << 60);
  EXPECT_EQ(read->layout_fingerprint, 0xFEDCBA9876543210);
  ASSERT_EQ(read->files.size(), 2);
  EXPECT_EQ(read->files[1].size_bytes, 8192);
}

TEST(ManifestTest, TheFirstHasNoParent) {
  Manifest manifest = Example();
  manifest.parent_pin_id.clear();
  const auto read = ParseManifest(ToJson(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->parent_pin_id, "");
  EXPECT_NE(ToJson(manifest).find("\"parent\": null"), std::string::npos);
}

TEST(ManifestTest, WhatIsNoManifestIsAnErrorThatSaysWhy) {
  const std::string good = ToJson(Example());
  for (const std::string& bad :
       {std::string(), std::string("[]"), good.substr(0, good.size() / 2),
        absl::StrReplaceAll(good, {{"\"format\": 1", "\"format\": 2"}}),
        absl::StrReplaceAll(good, {{"\"shard\": 1", "\"shard\": \"1\""}}),
        absl::StrReplaceAll(good, {{"fedcba9876543210", "g"}}),
        absl::StrReplaceAll(good, {{"size_bytes", "size"}}),
        absl::StrReplaceAll(good, {{"\"files\": [", "\"filez\": ["}})}) {
    const auto read = ParseManifest(bad);
    EXPECT_TRUE(absl::IsDataLoss(read.status())) << bad;
    EXPECT_GT(read.status().message().size(), 20u);
  }
}

TEST(ManifestTest, AnyFileIsReadOrDamaged) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  for (int i = 0; i < 20000; ++i) {
    const auto read = ParseManifest(any.Changed({ToJson(Example())}));
    EXPECT_TRUE(read.ok() || absl::IsDataLoss(read.status()));
    EXPECT_TRUE(!read.ok() || ParseManifest(ToJson(*read)).ok());
  }
}

}  // namespace
}  // namespace atl::server
