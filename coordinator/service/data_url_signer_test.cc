#include "coordinator/service/data_url_signer.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/object_store/open_object_store.h"
#include "base/object_store/testing/fake_s3.h"
#include "base/status/refusal.h"
#include "base/sync/testing/notification.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Code = absl::StatusCode;

class DataUrlSignerTest : public ::testing::Test {
 protected:
  DataUrlSignerTest() {
    variables_ = {{"AWS_ENDPOINT_URL", s3_.origin()},
                  {"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
                  {"AWS_SECRET_ACCESS_KEY", "secret/key+1"}};
  }

  // The answer of a signer with the variables as they are now.
  absl::StatusOr<v1::SignDataUrlsResponse> Sign(
      const std::string& manifest_url, std::vector<std::string> paths) {
    Notification done;
    absl::StatusOr<v1::SignDataUrlsResponse> answer;
    const auto signer = MakeDataUrlSigner(
        [variables =
             variables_](absl::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(std::string(name));
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
    signer->Sign(manifest_url, std::move(paths),
                 [&](absl::StatusOr<v1::SignDataUrlsResponse> made) {
                   answer = std::move(made);
                   done.Notify();
                 });
    EXPECT_TRUE(done.WaitWithTimeout(absl::Seconds(60)));
    return answer;
  }

  std::string Reason(const absl::Status& status) {
    const auto reason = GetReason(status);
    return reason.has_value() ? reason->reason : "";
  }

  FakeS3 s3_{SystemClock()};
  std::map<std::string, std::string> variables_;
};

TEST_F(DataUrlSignerTest, ASignedUrlReadsTheFileForAnHour) {
  s3_.Put("run/a", "bytes of a");
  s3_.Put("run/deep/b", "bytes of b");
  const absl::Time begin = absl::Now();
  const auto made = Sign("s3://bucket/run/manifest.json", {"a", "deep/b"});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->urls_size(), 2);
  EXPECT_EQ(made->urls(1).path(), "deep/b");
  const absl::Time end = FromProto(made->urls(0).expire_time());
  EXPECT_GE(end, begin + kDataUrlLifetime - absl::Minutes(1));
  EXPECT_LE(end, absl::Now() + kDataUrlLifetime + absl::Minutes(1));
  for (const v1::SignedDataUrl& url : made->urls()) {
    const auto store = OpenObjectStore(url.url(), {});
    ASSERT_TRUE(store.ok()) << store.status();
    std::string text;
    EXPECT_TRUE((*store)
                    ->Read("", {},
                           [&text](absl::string_view bytes) {
                             absl::StrAppend(&text, bytes);
                             return absl::OkStatus();
                           })
                    .ok());
    EXPECT_EQ(text, absl::StrCat("bytes of ", url.path() == "a" ? "a" : "b"));
  }
}

TEST_F(DataUrlSignerTest, DataAtTheRootOfABucketIsSigned) {
  const auto made = Sign("s3://bucket/manifest.json", {"manifest.json"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(made->urls(0).url().find("/bucket/manifest.json?"),
            std::string::npos);
}

TEST_F(DataUrlSignerTest, OtherDataAndNoCredentialsAreRefused) {
  for (const char* url :
       {"", "https://a/manifest.json", "file:///a/manifest.json"}) {
    EXPECT_EQ(Reason(Sign(url, {"a"}).status()), "NO_SIGNED_URLS") << url;
  }
  variables_.clear();
  const absl::Status status =
      Sign("s3://bucket/run/manifest.json", {"a"}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "NO_SIGNED_URLS");
}

TEST_F(DataUrlSignerTest, HalfOfAKeySignsNothingAndTellsNoIsland) {
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  const absl::Status status =
      Sign("s3://bucket/run/manifest.json", {"a"}).status();
  EXPECT_EQ(Reason(status), "NO_SIGNED_URLS");
  EXPECT_EQ(status.message().find("AWS_"), absl::string_view::npos);
}

TEST(CheckDataPathsTest, OnlyNamesBelowTheDirectoryAreSigned) {
  EXPECT_TRUE(CheckDataPaths({"a", "deep/b.bin", "manifest.json"}).ok());
  for (const char* path :
       {"", "..", "../a", "a/../../b", "/a", "a/", "a//b", ".", "./a"}) {
    EXPECT_EQ(CheckDataPaths({"a", path}).code(), Code::kInvalidArgument)
        << path;
  }
  EXPECT_EQ(CheckDataPaths({std::string(1025, 'a')}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(CheckDataPaths({}).code(), Code::kInvalidArgument);
  EXPECT_EQ(CheckDataPaths(std::vector<std::string>(65, "a")).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(CheckDataPaths(std::vector<std::string>(64, "a")).ok());
}

}  // namespace
}  // namespace atl::coordinator
