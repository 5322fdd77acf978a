#include "base/object_store/open_object_store.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/object_store/testing/fake_s3.h"
#include "base/random_id/random_id.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class OpenObjectStoreTest : public ::testing::Test {
 protected:
  OpenObjectStoreTest()
      : s3_(clock_, {.region = "eu-west-1",
                     .credentials = {"AKID", "secret", "session+/="}}) {
    std::map<std::string, std::string> variables = {
        {"AWS_ACCESS_KEY_ID", "AKID"},
        {"AWS_SECRET_ACCESS_KEY", "secret"},
        {"AWS_SESSION_TOKEN", "session+/="},
        {"AWS_REGION", "eu-west-1"},
        {"AWS_ENDPOINT_URL", s3_.origin()}};
    options_.environment =
        [variables = std::move(variables)](
            absl::string_view name) -> std::optional<std::string> {
      const auto found = variables.find(std::string(name));
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    options_.wall_clock = &clock_;
    options_.waiting = {.clock = &clock_, .sleep = [this](absl::Duration nap) {
                          clock_.Advance(nap);
                        }};
  }

  absl::StatusOr<std::string> Get(const std::string& url,
                                  const std::string& name) {
    auto store = OpenObjectStore(url, options_);
    if (!store.ok()) return store.status();
    std::string out;
    const absl::Status status =
        (*store)->Read(name, {}, [&out](absl::string_view bytes) {
          absl::StrAppend(&out, bytes);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return out;
  }

  absl::Status Put(const std::string& url, const std::string& name,
                   const std::string& bytes) {
    auto store = OpenObjectStore(url, options_);
    if (!store.ok()) return store.status();
    auto writer = (*store)->Write(name, WriteMode::kCreate);
    if (!writer.ok()) return writer.status();
    const absl::Status status = (*writer)->Append(bytes);
    return status.ok() ? (*writer)->Commit() : status;
  }

  Code OpenCode(const std::string& url) {
    return OpenObjectStore(url, options_).status().code();
  }

  FakeClock clock_;
  FakeS3 s3_;
  ObjectStoreOptions options_;
};

TEST_F(OpenObjectStoreTest, OpensFiles) {
  const std::string directory =
      JoinObjectName(::testing::TempDir(), RandomId());
  EXPECT_TRUE(Put("file://" + directory, "a/b", "bytes").ok());
  EXPECT_EQ(*Get("file://" + directory + "/a", "b"), "bytes");
  EXPECT_EQ(*Get("file://" + directory + "/a/b", ""), "bytes");
  std::filesystem::remove_all(directory);
}

TEST_F(OpenObjectStoreTest, OpensBucketsWithTheEnvironmentsKeys) {
  EXPECT_TRUE(Put("s3://bucket/run", "a/b", "bytes").ok());
  EXPECT_EQ(s3_.Get("run/a/b"), "bytes");
  EXPECT_EQ(*Get("s3://bucket/run/a/", "b"), "bytes");
  EXPECT_EQ(Get("s3://other/run", "a").status().code(), Code::kNotFound);
}

TEST_F(OpenObjectStoreTest, UploadsPartsOfEightMebibytes) {
  const std::string bytes((17 << 20) + 1, 'x');
  EXPECT_TRUE(Put("s3://bucket", "long", bytes).ok());
  EXPECT_EQ(s3_.Get("long"), bytes);
  int part_count = 0;
  for (const ServerRequest& request : s3_.requests()) {
    if (!absl::StrContains(request.target, "partNumber=")) continue;
    EXPECT_LE(request.body.size(), size_t{8} << 20);
    ++part_count;
  }
  EXPECT_EQ(part_count, 3);
}

TEST_F(OpenObjectStoreTest, APresignedUrlOpensWithoutKeys) {
  s3_.Put("run/a", "bytes");
  const auto presigner = OpenObjectPresigner("s3://bucket/run", options_);
  ASSERT_TRUE(presigner.ok()) << presigner.status();
  const auto signed_url = (*presigner)->Presign("a", absl::Minutes(5));
  ASSERT_TRUE(signed_url.ok()) << signed_url.status();
  EXPECT_EQ(signed_url->end_time,
            options_.wall_clock->Now() + absl::Minutes(5));
  EXPECT_EQ((*presigner)->Presign("../b", absl::Minutes(5)).status().code(),
            Code::kInvalidArgument);
  options_.environment = nullptr;
  EXPECT_EQ(*Get(signed_url->url, ""), "bytes");
  EXPECT_EQ(OpenObjectPresigner("https://a/b", options_).status().code(),
            Code::kInvalidArgument);
  const auto without_keys = OpenObjectPresigner("s3://bucket", options_);
  ASSERT_TRUE(without_keys.ok()) << without_keys.status();
  EXPECT_EQ((*without_keys)->Presign("a", absl::Minutes(5)).status().code(),
            Code::kUnauthenticated);
}

TEST_F(OpenObjectStoreTest, AUrlOfAPeerOpensNoFileAndDialsAsThePolicySays) {
  s3_.Put("run/a", "bytes");
  const auto presigner = OpenObjectPresigner("s3://bucket/run", options_);
  const std::string signed_url =
      (*presigner)->Presign("a", absl::Minutes(5))->url;
  const std::string directory =
      JoinObjectName(::testing::TempDir(), RandomId());
  EXPECT_TRUE(Put("file://" + directory, "a", "secret").ok());
  options_.dial_policy.emplace();
  const size_t request_count = s3_.requests().size();
  EXPECT_EQ(Get("file://" + directory, "a").status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Get(signed_url, "").status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(s3_.requests().size(), request_count);
  options_.dial_policy.emplace(std::set{AddressBlock::kLoopback},
                               std::vector<std::string>{});
  EXPECT_EQ(*Get(signed_url, ""), "bytes");
  // The bucket's host is the environment's, not the peer's.
  options_.dial_policy.emplace();
  EXPECT_EQ(*Get("s3://bucket/run", "a"), "bytes");
  std::filesystem::remove_all(directory);
}

TEST_F(OpenObjectStoreTest, WrongOptionsAreRefusedBeforeAnythingIsSent) {
  EXPECT_EQ(OpenCode("data"), Code::kInvalidArgument);
  options_.s3_part_bytes = 1 << 20;
  EXPECT_EQ(OpenCode("s3://bucket"), Code::kInvalidArgument);
  options_.s3_part_bytes = kS3PartBytes;
  options_.receive_bytes_per_second = 1;
  EXPECT_EQ(OpenCode("s3://bucket"), Code::kInvalidArgument);
  EXPECT_EQ(OpenCode("https://host/a"), Code::kInvalidArgument);
  options_.receive_bytes_per_second = 0;
  EXPECT_EQ(OpenCode("https://host/a"), Code::kOk);
  EXPECT_TRUE(s3_.requests().empty());
}

TEST_F(OpenObjectStoreTest, TheDefaultClockIsTheMachinesOwn) {
  options_.wall_clock = nullptr;
  s3_.Put("a", "x");
  // The server's clock stands still in 2023.
  const absl::Status status = Get("s3://bucket", "a").status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("clock"));
}

}  // namespace
}  // namespace atl
