#include "worker/data/fetch/open_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/batch_reader.h"
#include "worker/data/fetch/testing/fake_store.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;

class OpenDataTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/open_data_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_ + "/local/d");
    manifest_.format = v1::DATA_FORMAT_BYTES;
    for (int i = 0; i < 5; ++i) {
      std::string bytes;
      for (int k = 0; k < 40 + i; ++k) bytes += static_cast<char>(50 * i + k);
      Add(absl::StrCat("d/f", i), bytes, i == 4);
    }
    Publish();
    options_.cache_directory = root_ + "/cache";
    options_.open_store =
        [this](const std::string& url,
               auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
      EXPECT_EQ(url, "s3://bucket/set");
      return source_.Open();
    };
    spec_.mutable_inner()->set_batch_size(2);
    spec_.mutable_inner()->set_seed(5);
    spec_.mutable_model()->set_sequence_length(6);
    spec_.mutable_model()->set_vocab_size(256);
    spec_.mutable_evaluation()->set_batch_count(3);
    v1::DataSpec& data = *spec_.mutable_data();
    data.set_format(v1::DATA_FORMAT_BYTES);
    data.set_order(v1::DATA_ORDER_BY_FILE);
    data.set_data_shard_count(2);
    data.set_url("s3://bucket/set/manifest.json");
    data.set_fingerprint(ComputeFingerprint(manifest_));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Add(const std::string& path, const std::string& bytes,
           bool is_held_out) {
    manifest_.files.push_back({path, static_cast<int64_t>(bytes.size()),
                               codec::ToHex(codec::ComputeSha256(bytes)),
                               static_cast<int64_t>(bytes.size()),
                               is_held_out});
    source_.Put(path, bytes);
    std::ofstream(absl::StrCat(root_, "/local/", path), std::ios::binary)
        << bytes;
  }
  void Publish() {
    source_.Put("manifest.json", WriteManifest(manifest_));
    std::ofstream(root_ + "/local/manifest.json") << WriteManifest(manifest_);
  }

  // Everything that islands read in three epochs, and an evaluation.
  std::vector<int32_t> ReadAll(const v1::DataSpec& data,
                               const DataOptions& options) {
    auto opened = OpenData(data, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) return {};
    const auto reader = BatchReader::Create(*std::move(opened), spec_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<int32_t> all;
    Batch batch;
    for (int32_t shard = 0; shard < 2; ++shard) {
      for (int64_t position = 0; position < 36; position += 2) {
        const absl::Status read = reader->Read(shard, position, batch);
        EXPECT_TRUE(read.ok()) << read;
        all.insert(all.end(), batch.inputs.begin(), batch.inputs.end());
      }
    }
    Batch evaluation;
    const absl::Status held_out = reader->ReadEvaluation(evaluation);
    EXPECT_TRUE(held_out.ok()) << held_out;
    all.insert(all.end(), evaluation.inputs.begin(), evaluation.inputs.end());
    return all;
  }

  size_t CountReads(const std::string& name) {
    size_t count = 0;
    for (const FakeSource::Call& call : source_.calls()) {
      count += call.name == name ? 1 : 0;
    }
    return count;
  }

  std::string root_;
  Manifest manifest_;
  FakeSource source_;
  DataOptions options_;
  v1::RunSpec spec_;
};

TEST_F(OpenDataTest, TokensDoNotDependOnHowFilesCame) {
  const std::vector<int32_t> fetched = ReadAll(spec_.data(), options_);
  EXPECT_GT(fetched.size(), 400u);
  // The cache is full now.
  EXPECT_EQ(ReadAll(spec_.data(), options_), fetched);
  EXPECT_EQ(CountReads("d/f0"), 1u);
  // A cache that holds one file at a time.
  options_.cache_directory = root_ + "/small";
  options_.cache_bytes_max = 44;
  EXPECT_EQ(ReadAll(spec_.data(), options_), fetched);
  // Local files.
  DataOptions at_path;
  at_path.path = root_ + "/local";
  EXPECT_EQ(ReadAll(spec_.data(), at_path), fetched);
}

TEST_F(OpenDataTest, ARestartNeedsNoSourceForWhatIsInTheCache) {
  const std::vector<int32_t> fetched = ReadAll(spec_.data(), options_);
  options_.open_store =
      [](const std::string&,
         auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    return absl::UnavailableError("away");
  };
  EXPECT_EQ(ReadAll(spec_.data(), options_), fetched);
}

TEST_F(OpenDataTest, ADamagedManifestInTheCacheIsReadAgain) {
  ReadAll(spec_.data(), options_);
  std::ofstream(absl::StrCat(options_.cache_directory, "/manifests/",
                             spec_.data().fingerprint()))
      << "{}";
  EXPECT_TRUE(OpenData(spec_.data(), options_).ok());
  EXPECT_EQ(CountReads("manifest.json"), 2u);
}

TEST_F(OpenDataTest, RefusesAnotherManifestThanTheRuns) {
  manifest_.files[0].is_held_out = true;
  Publish();
  const absl::Status other = OpenData(spec_.data(), options_).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("the run's is"));
}

TEST_F(OpenDataTest, RefusesLocalFilesThatChanged) {
  DataOptions local;
  local.path = root_ + "/local";
  for (const std::string& bad :
       std::vector<std::string>{"short", std::string(40, 'x')}) {
    std::ofstream(root_ + "/local/d/f0") << bad;
    const auto data = OpenData(spec_.data(), local);
    ASSERT_TRUE(data.ok()) << data.status();
    std::vector<int32_t> tokens(3);
    const absl::Status read = (*data)->Read(0, absl::MakeSpan(tokens));
    EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(read.message()), HasSubstr("/local/d/f0"));
  }
}

TEST_F(OpenDataTest, AStopEndsTheWaitForTheManifest) {
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.open_store =
      [&](const std::string&,
          auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    stop.request_stop();
    return absl::UnavailableError("away");
  };
  EXPECT_EQ(OpenData(spec_.data(), options_).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(OpenDataTest, NeedsACacheForDataThatIsNotLocal) {
  options_.cache_directory = "";
  EXPECT_THAT(std::string(OpenData(spec_.data(), options_).status().message()),
              HasSubstr("--data-cache"));
}

TEST_F(OpenDataTest, OpensTheCallersPathAndNeverTheSpecs) {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path(root_ + "/local/d");
  data.set_data_shard_count(1);
  DataOptions at_path;
  at_path.path = data.path();
  EXPECT_EQ((*OpenData(data, at_path))->token_count(), 40 + 41 + 42 + 43 + 44);
  EXPECT_EQ(OpenData(data, options_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(OpenDataTest, OpensNoDirectoryOfAFileUrlByItself) {
  v1::DataSpec data = spec_.data();
  data.set_url(absl::StrCat("file://", root_, "/local/manifest.json"));
  EXPECT_FALSE(OpenData(data, {}).ok());
}

TEST(ParseManifestUrlTest, SplitsOffTheName) {
  const std::vector<std::pair<std::string, std::string>> urls = {
      {"s3://bucket/a b/manifest.json", "s3://bucket/a b"},
      {"s3://bucket/manifest.json", "s3://bucket"},
      {"https://host:8443/a/manifest.json", "https://host:8443/a"},
      {"https://host/manifest.json", "https://host"},
      {"file:///srv/d/manifest.json", "file:///srv/d"},
      {"file:///manifest.json", "file:///"},
  };
  for (const auto& [url, directory] : urls) {
    const auto parsed = ParseManifestUrl(url);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->directory_url, directory);
    EXPECT_EQ(parsed->name, "manifest.json");
  }
  for (const char* url :
       {"", "manifest.json", "ftp://host/manifest.json", "https://host",
        "https://host/", "https://host/m.json?sig=secret", "s3://bucket",
        "file://srv/manifest.json", "s3://bucket/a/..", "s3://bucket/a%2f"}) {
    const absl::Status status = ParseManifestUrl(url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()),
                ::testing::Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace atl::worker
