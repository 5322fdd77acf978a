#include "worker/data/manifest.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Hex(char digit) { return std::string(64, digit); }

Manifest Example() {
  Manifest manifest;
  manifest.format = v1::DATA_FORMAT_LLMC;
  manifest.files = {{"a/0.bin", 1024 + 200, Hex('a'), 100, false},
                    {"a/1.bin", 1024 + 400, Hex('b'), 200, false},
                    {"b.bin", 1024 + 100, Hex('c'), 50, true}};
  return manifest;
}

absl::Status Parse(const std::string& text) {
  return ParseManifest(text, "s3://bucket/manifest.json").status();
}

TEST(ManifestTest, ReadsWhatItWrites) {
  Manifest example = Example();
  example.files[2].path = "Zürich \"quoted\".bin";
  const std::string text = WriteManifest(example);
  const auto read = ParseManifest(text, "m");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WriteManifest(*read), text);
  EXPECT_EQ(read->files[2].path, example.files[2].path);
  EXPECT_TRUE(read->files[2].is_held_out);
  EXPECT_EQ(ComputeFingerprint(*read), ComputeFingerprint(example));
  EXPECT_THAT(FindFiles(*read, false), ElementsAre(0, 1));
  EXPECT_THAT(FindFiles(*read, true), ElementsAre(2));
  EXPECT_EQ(GetTokenBytes(*read), 2);
}

TEST(ManifestTest, RefusesOtherTexts) {
  const std::string good = WriteManifest(Example());
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "is not JSON"},
      {"[]", "is not an object"},
      {good + "x", "is not JSON"},
      {absl::StrReplaceAll(good, {{"\"version\": 1", "\"version\": 2"}}),
       "its version is not 1"},
      {absl::StrReplaceAll(good, {{"llmc", "parquet"}}),
       "the format \"parquet\" is not known"},
      {absl::StrReplaceAll(good, {{"\"version\": 1, ", ""}}), "\"version\""},
      {absl::StrReplaceAll(good, {{"{\"version", "{\"x\": 1, \"version"}}),
       "unknown key \"x\"; its keys are version, format, shards"},
      {absl::StrReplaceAll(good, {{"\"bytes\": 1124", "\"bytes\": 1.5"}}),
       "shards[2]: bytes is not a whole number"},
      {absl::StrReplaceAll(good, {{"\"bytes\": 1124", "\"bytes\": -1"}}),
       "bytes is not a whole number"},
      {absl::StrReplaceAll(good, {{"\"held_out\": true", "\"held_out\": 1"}}),
       "held_out is neither"},
      {absl::StrReplaceAll(good, {{"\"held_out\": true", "\"heldout\": true"}}),
       "has no key \"held_out\""},
      {"{\"version\": 1, \"format\": \"bytes\", \"shards\": {}}",
       "shards is not a list"},
      {"{\"version\": 1, \"format\": \"bytes\", \"shards\": []}",
       "no shard to train on"},
      {std::string(100000, '['), "is not JSON"},
      {std::string(Manifest::kTextBytesMax + 1, ' '), "has more than 67108864"},
  };
  for (const auto& [text, words] : faults) {
    const absl::Status status = Parse(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("manifest s3://bucket/manifest.json: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
}

TEST(ManifestTest, RefusesFilesThatCannotBeRead) {
  using Change = std::function<void(Manifest&)>;
  const std::vector<std::pair<std::string, Change>> faults = {
      {"is not a name", [](Manifest& m) { m.files[1].path = "../x.bin"; }},
      {"is not a name", [](Manifest& m) { m.files[1].path = "a/../x.bin"; }},
      {"is not a name", [](Manifest& m) { m.files[1].path = "/etc/x.bin"; }},
      {"is not a name", [](Manifest& m) { m.files[1].path = "a//x.bin"; }},
      {"control character", [](Manifest& m) { m.files[1].path = "a\nb"; }},
      {"its path has 0", [](Manifest& m) { m.files[1].path = ""; }},
      {"its path has 1025",
       [](Manifest& m) { m.files[1].path = std::string(1025, 'x'); }},
      {"is there twice", [](Manifest& m) { m.files[1].path = "b.bin"; }},
      {"64 lower-case", [](Manifest& m) { m.files[1].sha256 = Hex('A'); }},
      {"64 lower-case", [](Manifest& m) { m.files[1].sha256 += "0"; }},
      {"it has 0 bytes", [](Manifest& m) { m.files[1].size_bytes = 0; }},
      {"it has 1099511627777 bytes",
       [](Manifest& m) { m.files[1].size_bytes = (int64_t{1} << 40) + 1; }},
      {"it has 1 tokens", [](Manifest& m) { m.files[1].token_count = 1; }},
      {"1424 bytes are not 201 tokens in the format llmc",
       [](Manifest& m) { m.files[1].token_count = 201; }},
      {"have tokens of different sizes",
       [](Manifest& m) { m.files[1].token_count = 100; }},
      {"no shard to train on",
       [](Manifest& m) {
         for (ManifestFile& file : m.files) file.is_held_out = true;
       }},
      {"has 100001 shards",
       [](Manifest& m) { m.files.resize(Manifest::kFilesMax + 1); }},
  };
  for (const auto& [words, change] : faults) {
    Manifest manifest = Example();
    change(manifest);
    const absl::Status status = CheckManifest(manifest);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_FALSE(Parse(WriteManifest(manifest)).ok());
  }
}

TEST(ManifestTest, EveryFormatSaysWhatATokenTakes) {
  Manifest manifest;
  manifest.format = v1::DATA_FORMAT_BYTES;
  manifest.files = {{"a", 7, Hex('a'), 7, false}};
  EXPECT_TRUE(CheckManifest(manifest).ok());
  EXPECT_EQ(GetTokenBytes(manifest), 1);
  manifest.format = v1::DATA_FORMAT_UINT16;
  EXPECT_FALSE(CheckManifest(manifest).ok());
  manifest.files[0].size_bytes = 14;
  EXPECT_TRUE(CheckManifest(manifest).ok());
  EXPECT_EQ(GetTokenBytes(manifest), 2);
  manifest.format = v1::DATA_FORMAT_LLMC;
  manifest.files[0].size_bytes = 1024 + 28;
  EXPECT_TRUE(CheckManifest(manifest).ok());
  EXPECT_EQ(GetTokenBytes(manifest), 4);
  manifest.format = v1::DATA_FORMAT_EXTERNAL;
  EXPECT_FALSE(CheckManifest(manifest).ok());
}

TEST(ManifestTest, TheFingerprintSeesEverything) {
  const std::string is = ComputeFingerprint(Example());
  // Islands of older programs must compute the same.
  EXPECT_EQ(is,
            "8a7f9defbae48d7f2cbcc384785cc08075db069d6abe4aa20ff7679f170820f0");
  using Change = std::function<void(Manifest&)>;
  const std::vector<Change> changes = {
      [](Manifest& m) { m.format = v1::DATA_FORMAT_UINT16; },
      [](Manifest& m) { m.files[0].path = "a/2.bin"; },
      [](Manifest& m) { m.files[0].size_bytes += 1; },
      [](Manifest& m) { m.files[0].sha256 = Hex('d'); },
      [](Manifest& m) { m.files[0].token_count += 1; },
      [](Manifest& m) { m.files[2].is_held_out = false; },
      [](Manifest& m) { std::swap(m.files[0], m.files[1]); },
      [](Manifest& m) { m.files.pop_back(); },
  };
  for (const Change& change : changes) {
    Manifest manifest = Example();
    change(manifest);
    EXPECT_NE(ComputeFingerprint(manifest), is);
  }
}

}  // namespace
}  // namespace atl::worker
