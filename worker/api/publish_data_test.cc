#include "worker/api/publish_data.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Llmc(int first, int count) {
  std::string bytes(1024 + 2 * count, '\0');
  const int32_t header[3] = {20240520, 1, count};
  std::memcpy(bytes.data(), header, sizeof(header));
  for (int i = 0; i < count; ++i) {
    const uint16_t token = static_cast<uint16_t>(first + i);
    std::memcpy(&bytes[1024 + 2 * i], &token, 2);
  }
  return bytes;
}

class PublishDataTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/publish_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    options_.input = root_ + "/in";
    options_.to = absl::StrCat("file://", root_, "/out");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string Read(const std::string& name) {
    const auto bytes = ReadFile(PosixFileSystem(), root_ + "/" + name);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.value_or("");
  }
  PublishResult Publish() {
    const auto result = PublishData(options_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(PublishResult());
  }
  Manifest Published() {
    const auto manifest =
        ReadManifest(options_.to + "/manifest.json", OpenStoreOfUrl);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return manifest.value_or(Manifest());
  }
  std::vector<std::string> HeldOut() {
    std::vector<std::string> paths;
    for (const ManifestFile& file : Published().files) {
      if (file.is_held_out) paths.push_back(file.path);
    }
    return paths;
  }

  std::string root_;
  PublishOptions options_;
};

TEST_F(PublishDataTest, UploadsFilesAndThenTheManifest) {
  Write("in/a.bin", Llmc(0, 100));
  Write("in/sub/b.bin", Llmc(100, 50));
  Write("in/README", "not tokens");
  const PublishResult result = Publish();
  EXPECT_EQ(result.url, options_.to + "/manifest.json");
  EXPECT_EQ(result.format, v1::DATA_FORMAT_LLMC);
  EXPECT_EQ(result.file_count, 2);
  EXPECT_EQ(result.uploaded_file_count, 2);
  EXPECT_EQ(result.token_count, 150);
  EXPECT_EQ(result.held_out_token_count, 50);
  EXPECT_EQ(result.smallest_token_count, 50);
  EXPECT_EQ(Read("out/sub/b.bin"), Llmc(100, 50));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/README"));
  EXPECT_EQ(result.fingerprint, ComputeFingerprint(Published()));
}

TEST_F(PublishDataTest, ContinuesAndUploadsNothingTwice) {
  Write("in/a", std::string(100, 'a'));
  Write("in/b", std::string(100, 'b'));
  Write("out/a", std::string(100, 'a'));
  EXPECT_EQ(Publish().uploaded_file_count, 1);
  const PublishResult again = Publish();
  EXPECT_EQ(again.uploaded_file_count, 0);
  EXPECT_EQ(again.fingerprint, ComputeFingerprint(Published()));
}

TEST_F(PublishDataTest, ReplacesAnotherFileOnlyWithVerify) {
  Write("in/a", std::string(100, 'a'));
  Write("in/b", std::string(100, 'b'));
  for (const int size : {100, 7}) {
    Write("out/a", std::string(size, 'x'));
    const absl::Status status = PublishData(options_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--verify"));
    EXPECT_EQ(Read("out/a"), std::string(size, 'x'));
  }
  options_.verify = true;
  EXPECT_EQ(Publish().uploaded_file_count, 2);
  EXPECT_EQ(Read("out/a"), std::string(100, 'a'));
  EXPECT_EQ(Publish().uploaded_file_count, 0);
}

TEST_F(PublishDataTest, NeverReplacesAnotherDataSet) {
  Write("in/a", std::string(100, 'a'));
  Write("in/b", std::string(100, 'b'));
  Publish();
  Write("in/a", std::string(100, 'c'));
  const absl::Status status = PublishData(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another directory"));
  EXPECT_EQ(Read("out/a"), std::string(100, 'a'));
}

TEST_F(PublishDataTest, PublishesInPlace) {
  Write("in/a", std::string(100, 'a'));
  Write("in/b", std::string(100, 'b'));
  options_.to = absl::StrCat("file://", root_, "/in");
  EXPECT_EQ(Publish().uploaded_file_count, 0);
  EXPECT_EQ(Publish().file_count, 2) << "the manifest is not data";
}

TEST_F(PublishDataTest, HoldsOutTheLastFilesThatMakeUpTheShare) {
  for (int i = 0; i < 10; ++i) {
    Write(absl::StrCat("in/f", i), std::string(100, 'x'));
  }
  Publish();
  EXPECT_THAT(HeldOut(), ElementsAre("f9"));
  options_.to += "2";
  options_.held_out_fraction = 0.11;
  Publish();
  EXPECT_THAT(HeldOut(), ElementsAre("f8", "f9"));
  options_.to += "2";
  options_.held_out_fraction = 0.98;
  EXPECT_EQ(Publish().held_out_file_count, 9);
  options_.to += "2";
  options_.held_out_fraction = 0;
  EXPECT_EQ(Publish().held_out_file_count, 0);
  options_.to += "2";
  options_.held_out_files = {"f3", "f5"};
  Publish();
  EXPECT_THAT(HeldOut(), ElementsAre("f3", "f5"));
  options_.held_out_files = {"f3", "f33"};
  EXPECT_THAT(std::string(PublishData(options_).status().message()),
              HasSubstr("no file \"f33\""));
}

TEST_F(PublishDataTest, SaysWhatToDoWithASingleFile) {
  Write("in/a", std::string(10000, 'a'));
  const absl::Status status = PublishData(options_).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--shard-bytes"));
  options_.input += "/a";
  options_.shard_bytes = 4096;
  const PublishResult result = Publish();
  EXPECT_EQ(result.file_count, 3);
  EXPECT_EQ(result.token_count, 10000);
  EXPECT_THAT(HeldOut(), ElementsAre("a-00002"));
}

TEST_F(PublishDataTest, SplitsTokenFilesIntoWholeOnes) {
  Write("in/t.bin", Llmc(0, 4000));
  options_.shard_bytes = 4096;
  options_.held_out_fraction = 0;
  Publish();
  const Manifest manifest = Published();
  ASSERT_EQ(manifest.files.size(), 3u);  // Of at most 1536 tokens.
  int first = 0;
  for (const ManifestFile& file : manifest.files) {
    EXPECT_LE(file.size_bytes, 4096);
    const int count = static_cast<int>(file.token_count);
    EXPECT_EQ(Read("out/" + file.path), Llmc(first, count));
    first += count;
  }
  EXPECT_EQ(first, 4000);
}

TEST_F(PublishDataTest, RefusesWhatItCannotPublish) {
  Write("in/a.bin", "not tokens");
  EXPECT_THAT(std::string(PublishData(options_).status().message()),
              HasSubstr("is not an llm.c token file"));
  options_.to = "https://host/data";
  const absl::Status https = PublishData(options_).status();
  EXPECT_EQ(https.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(https.message()), HasSubstr("can only be read"));
  options_.to = "ftp://host/data";
  EXPECT_EQ(PublishData(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
  options_.to = absl::StrCat("file://", root_, "/out");
  options_.input = root_ + "/none";
  EXPECT_EQ(PublishData(options_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PublishDataTest, AStopLeavesNoManifest) {
  Write("in/a", std::string(100, 'a'));
  Write("in/b", std::string(100, 'b'));
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.on_progress = [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 400);
    if (done == 300) stop.request_stop();
  };
  EXPECT_EQ(PublishData(options_).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/manifest.json"));
  options_.stop = {};
  options_.on_progress = nullptr;
  EXPECT_EQ(Publish().uploaded_file_count, 1);
}

}  // namespace
}  // namespace atl::worker
