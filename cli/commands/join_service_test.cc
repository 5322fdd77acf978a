#include "cli/commands/join_service.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::absl::StrContains;

ServiceUnit Unit() {
  ServiceUnit unit;
  unit.run_id = "spring";
  unit.command = {"/opt/at oll/atoll", "join", "--run=spring", "--hours=100%",
                  "--x=$HOME\"q\\"};
  unit.working_directory = "/home/ada";
  unit.environment = {"XDG_STATE_HOME=/data/my state"};
  unit.writable_directories = {"/data/my state/atoll"};
  return unit;
}

TEST(ServiceUnitTest, QuotesWhatSystemdWouldExpand) {
  const std::string text = UnitText(Unit()).value();
  EXPECT_TRUE(
      StrContains(text,
                  "\nExecStart=\"/opt/at oll/atoll\" \"join\" \"--run=spring\" "
                  "\"--hours=100%%\" \"--x=$$HOME\\\"q\\\\\"\n"))
      << text;
  EXPECT_TRUE(
      StrContains(text, "\nEnvironment=\"XDG_STATE_HOME=/data/my state\"\n"));
  EXPECT_TRUE(StrContains(text, "\nReadWritePaths=\"/data/my state/atoll\"\n"));
  EXPECT_TRUE(StrContains(text, "\nWorkingDirectory=/home/ada\n"));
  ServiceUnit unit = Unit();
  unit.command.push_back("a\nExecStartPre=/bin/sh");
  EXPECT_TRUE(absl::IsInvalidArgument(UnitText(unit).status()));
}

TEST(ServiceUnitTest, HasSomeLimitsAndYields) {
  ServiceUnit unit = Unit();
  EXPECT_FALSE(StrContains(UnitText(unit).value(), "MemoryMax"));
  unit.memory_bytes = 4'000'000'000;
  unit.nice = 19;
  const std::string text = UnitText(unit).value();
  for (const char* line :
       {"CPUWeight=idle", "Nice=19", "MemoryMax=4000000000",
        "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=read-only",
        "PrivateTmp=yes", "LockPersonality=yes", "Restart=always",
        "RestartPreventExitStatus=0 2 4 7 8 9 10"}) {
    EXPECT_TRUE(StrContains(text, absl::StrCat("\n", line, "\n"))) << line;
  }
}

// A systemctl that notes its arguments and fails at one of them.
class InstallUnitTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/unit_", ::getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/bin");
    path_ = std::getenv("PATH");
    ::setenv("PATH", absl::StrCat(root_, "/bin:/usr/bin:/bin").c_str(), 1);
    unit_ = Unit();
    unit_.writable_directories = {root_ + "/state"};
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(root_);
  }

  void FakeSystemctl(const std::string& failing) {
    const std::string file = root_ + "/bin/systemctl";
    std::ofstream(file) << "#!/bin/sh\necho \"$@\" >> " << root_
                        << "/calls\n[ \"$2\" != " << failing
                        << " ] || { echo no bus >&2; exit 1; }\n";
    ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  }
  std::string Calls() const {
    std::ifstream file(root_ + "/calls");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  bool IsThere() const {
    return std::filesystem::exists(root_ + "/user/atoll-spring.service");
  }

  std::string root_, path_;
  ServiceUnit unit_;
};

TEST_F(InstallUnitTest, WritesEnablesAndStarts) {
  FakeSystemctl("none");
  EXPECT_TRUE(InstallUnit(unit_, root_ + "/user", {"PATH=/usr/bin:/bin"}).ok());
  EXPECT_TRUE(IsThere());
  EXPECT_TRUE(std::filesystem::exists(root_ + "/state"));
  EXPECT_EQ(Calls(),
            "--user show-environment\n--user daemon-reload\n"
            "--user enable atoll-spring.service\n"
            "--user restart atoll-spring.service\n");
}

TEST_F(InstallUnitTest, LeavesNothingBehindIfItFails) {
  for (const char* failing : {"show-environment", "daemon-reload", "enable",
                              "restart"}) {
    FakeSystemctl(failing);
    const absl::Status failed =
        InstallUnit(unit_, root_ + "/user", {"PATH=/usr/bin:/bin"});
    EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failing;
    EXPECT_TRUE(StrContains(failed.message(), "no bus")) << failed;
    EXPECT_FALSE(IsThere()) << failing;
  }
}

TEST_F(InstallUnitTest, AFailureLeavesTheEarlierService) {
  FakeSystemctl("none");
  ASSERT_TRUE(InstallUnit(unit_, root_ + "/user", {"PATH=/usr/bin:/bin"}).ok());
  FakeSystemctl("restart");
  unit_.command.push_back("--only-idle");
  EXPECT_FALSE(InstallUnit(unit_, root_ + "/user", {"PATH=/usr/bin:/bin"}).ok());
  std::ifstream file(root_ + "/user/atoll-spring.service");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_FALSE(text.empty());
  EXPECT_FALSE(StrContains(text, "--only-idle"));
}

TEST_F(InstallUnitTest, AUnitOfAPersonIsNotReplaced) {
  FakeSystemctl("none");
  std::filesystem::create_directories(root_ + "/user");
  const std::string path = root_ + "/user/atoll-spring.service";
  std::ofstream(path) << "[Unit]\n";
  const absl::Status refused =
      InstallUnit(unit_, root_ + "/user", {"PATH=/usr/bin:/bin"});
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_TRUE(StrContains(refused.message(), path)) << refused;
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "[Unit]\n");
}

TEST(ServiceUnitTest, APathInTmpIsNotHidden) {
  ServiceUnit unit = Unit();
  EXPECT_TRUE(StrContains(UnitText(unit).value(), "PrivateTmp=yes\n"));
  unit.writable_directories.push_back("/tmp/island");
  EXPECT_TRUE(StrContains(UnitText(unit).value(), "PrivateTmp=no\n"));
}

}  // namespace
}  // namespace atl::cli
