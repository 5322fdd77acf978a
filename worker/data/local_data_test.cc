#include "worker/data/local_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

v1::DataSpec AtPath(const std::string& path) {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path(path);
  return data;
}

v1::DataSpec ByUrl(const std::string& url) {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_url(url);
  return data;
}

// A machine with HOME/allowed/text, HOME/key, and links between them.
class LocalDataTest : public testing::Test {
 protected:
  void SetUp() override {
    home_ = fs::canonical(testing::TempDir()) /
            absl::StrCat(
                "local_data_", ::getpid(), "_",
                testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(home_ / "allowed/text");
    fs::create_directories(home_ / "allowed2");
    std::ofstream(home_ / "key") << "secret";
    std::ofstream(home_ / "allowed2/key") << "secret";
    fs::create_symlink(home_ / "key", home_ / "allowed/link");
    fs::create_directory_symlink(home_, home_ / "allowed/up");
    fs::create_directory_symlink(home_ / "allowed", home_ / "same");
  }
  void TearDown() override { fs::remove_all(home_); }

  std::string At(const std::string& name) const {
    return (home_ / name).string();
  }
  LocalDataRights WithRoot() const { return {.roots = {At("allowed")}}; }

  void ExpectRefused(const v1::DataSpec& data, const LocalDataRights& rights) {
    const absl::Status status = FindDataPlace(data, rights).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition)
        << data.path() << data.url();
    if (status.ok()) return;
    EXPECT_EQ(GetReason(status)->reason, kDataNotAllowed);
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr("--data PATH"));
    EXPECT_THAT(message, HasSubstr("atoll data allow DIR"));
    EXPECT_FALSE(absl::StrContains(message, "\n")) << message;
  }

  fs::path home_;
};

TEST_F(LocalDataTest, ARunOpensNothingThatNobodyHereAllowed) {
  const auto never = [](const std::string&) -> absl::StatusOr<std::string> {
    ADD_FAILURE() << "looked at the disk";
    return absl::InternalError("");
  };
  for (const v1::DataSpec& data :
       {AtPath(At("key")), AtPath(At("allowed/text")),
        ByUrl(absl::StrCat("file://", At("allowed"), "/manifest.json"))}) {
    for (const LocalDataRights& rights :
         {LocalDataRights{}, LocalDataRights{.has_tls = false},
          LocalDataRights{.coordinator_is_loopback = true}}) {
      ExpectRefused(data, rights);
      EXPECT_FALSE(FindDataPlace(data, rights, never).ok());
    }
  }
}

TEST_F(LocalDataTest, ThePersonsPathIsOpenedWhateverTheRunNames) {
  const LocalDataRights rights = {.data_path = "mine"};
  for (const v1::DataSpec& data :
       {AtPath(At("key")), AtPath(""), ByUrl("file:///a/manifest.json"),
        ByUrl("https://host/manifest.json")}) {
    const auto place = FindDataPlace(data, rights);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->path, "mine");
    EXPECT_EQ(place->Describe(), "opens \"mine\": given with --data");
  }
}

TEST_F(LocalDataTest, AnAllowedFolderIsOpened) {
  for (const std::string& path :
       {At("allowed"), At("allowed/text"), At("same/text"),
        At("allowed/text/../text"), At("allowed2/../allowed/text")}) {
    const auto place = FindDataPlace(AtPath(path), WithRoot());
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->path, fs::canonical(path).string());
    EXPECT_THAT(place->Describe(), HasSubstr("atoll data allow"));
  }
  const auto by_url = FindDataPlace(
      ByUrl(absl::StrCat("file://", At("allowed/text"), "/manifest.json")),
      WithRoot());
  ASSERT_TRUE(by_url.ok()) << by_url.status();
  EXPECT_EQ(by_url->path, At("allowed/text"));
}

TEST_F(LocalDataTest, NothingEscapesFromAnAllowedFolder) {
  for (const std::string& path :
       {At("key"), At("allowed/link"), At("allowed/up"), At("allowed/up/key"),
        At("allowed/../key"), At("allowed/text/../../key"), At("allowed2"),
        At("allowed2/key"), At("allowed/missing"), std::string("allowed/text"),
        std::string("/")}) {
    ExpectRefused(AtPath(path), WithRoot());
  }
  ExpectRefused(
      ByUrl(absl::StrCat("file://", At("allowed/up"), "/manifest.json")),
      WithRoot());
  ExpectRefused(
      ByUrl(absl::StrCat("file://", At("allowed"), "/%2e%2e/manifest.json")),
      WithRoot());
}

TEST_F(LocalDataTest, AnIslandOfThisMachinesOwnClusterOpensWhatTheRunNames) {
  const LocalDataRights rights = {.has_tls = false,
                                  .coordinator_is_loopback = true};
  EXPECT_EQ(FindDataPlace(AtPath("/srv/text"), rights)->path, "/srv/text");
  EXPECT_EQ(FindDataPlace(ByUrl("file:///srv/d/manifest.json"), rights)->path,
            "/srv/d");
  EXPECT_THAT(FindDataPlace(AtPath("/srv/text"), rights)->Describe(),
              HasSubstr("/srv/text"));
}

TEST_F(LocalDataTest, DataByUrlAndATrainersOwnOpenNothing) {
  for (const char* url :
       {"https://host/manifest.json", "s3://bucket/manifest.json"}) {
    EXPECT_EQ(FindDataPlace(ByUrl(url), {})->path, "") << url;
  }
  v1::DataSpec external = AtPath(At("key"));
  external.set_format(v1::DATA_FORMAT_EXTERNAL);
  EXPECT_EQ(FindDataPlace(external, {})->path, "");
  EXPECT_EQ(FindDataPlace(external, {})->Describe(), "");
}

TEST_F(LocalDataTest, ARunWithoutDataNeedsThePersonsPath) {
  const absl::Status status = FindDataPlace(AtPath(""), WithRoot()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--data PATH"));
}

TEST_F(LocalDataTest, MessagesEscapeWhatAPeerWrote) {
  const absl::Status status =
      FindDataPlace(AtPath("/a\n\x1b[2Jb"), {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/a\\n\\033[2Jb"));
}

}  // namespace
}  // namespace atl::worker
