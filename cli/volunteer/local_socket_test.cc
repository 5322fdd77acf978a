#include "cli/volunteer/local_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

class LocalSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/local_", ::getpid(),
                              std::string(120, 'x'));
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<std::unique_ptr<LocalServer>> Start() {
    return LocalServer::Start(directory_, "a.sock",
                              [](const Json& request) -> absl::StatusOr<Json> {
                                if (request.contains("fail")) {
                                  return absl::FailedPreconditionError("no");
                                }
                                return Json{{"got", request}};
                              });
  }

  std::string directory_;
};

TEST_F(LocalSocketTest, AnswersAnObjectOrAnError) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  for (int i = 0; i < 3; ++i) {
    const auto answer =
        CallLocal(directory_, "a.sock", {{"command", "status"}});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->dump(), R"({"got":{"command":"status"}})");
  }
  const auto refused = CallLocal(directory_, "a.sock", {{"fail", true}});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_EQ(refused.status().message(), "no");
  EXPECT_TRUE(absl::IsInvalidArgument(
      CallLocal(directory_, "a.sock", Json::array()).status()));
}

TEST_F(LocalSocketTest, IsForItsUserAloneAndGoesWithItsProcess) {
  {
    const auto server = Start();
    ASSERT_TRUE(server.ok()) << server.status();
    struct stat found = {};
    ASSERT_EQ(::stat(directory_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700);
    EXPECT_EQ(ListLocal(directory_), std::vector<std::string>{"a.sock"});
  }
  EXPECT_TRUE(ListLocal(directory_).empty());
  EXPECT_TRUE(absl::IsNotFound(CallLocal(directory_, "a.sock", {}).status()));
}

TEST_F(LocalSocketTest, ASecondProcessIsRefusedAndADeadOneReplaced) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(absl::IsAlreadyExists(Start().status()));
  // What a killed process leaves: a socket at which nobody listens.
  std::filesystem::rename(directory_ + "/a.sock", directory_ + "/b.sock");
  server->reset();
  std::filesystem::rename(directory_ + "/b.sock", directory_ + "/a.sock");
  EXPECT_TRUE(absl::IsNotFound(CallLocal(directory_, "a.sock", {}).status()));
  EXPECT_TRUE(Start().ok());
}

TEST_F(LocalSocketTest, ADirectoryThatOthersMayReadIsRefused) {
  std::filesystem::create_directories(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Start().status()));
}

TEST(LocalNameTest, IsShortAndOneForEachIsland) {
  const std::string name = LocalName("/d", "run", "a");
  EXPECT_EQ(name.size(), 37);
  EXPECT_EQ(name, LocalName("/d", "run", "a"));
  EXPECT_NE(name, LocalName("/d", "run", "b"));
  EXPECT_NE(name, LocalName("/d", "ru", "na"));
  EXPECT_NE(name, LocalName("/e", "run", "a"));
}

}  // namespace
}  // namespace atl::cli
