#include "cli/commands/join_sandbox.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class JoinSandboxTest : public ::testing::Test {
 protected:
  JoinSandboxTest() {
    context_.settings = *Settings::Resolve({});
    context_.executable = "/bin/atoll";
    context_.state_directory = "/home/anna/.local/state/atoll";
    context_.environment = {{"HOME", "/home/anna"}};
    context_.profile_path = "/home/anna/.config/atoll/profile.toml";
    island_.coordinator_address = "atoll.example:7400";
    island_.work_directory = "/home/anna/.local/state/atoll/islands/r/i";
    island_.data_cache_directory = "/home/anna/.local/state/atoll/data-cache";
    island_.place.device = "cpu";
  }

  SandboxRequest Make(const std::string& enrolment = "") {
    return MakeSandboxRequest(context_, island_, enrolment, "");
  }

  std::ostringstream stream_;
  Output output_{OutputFormat::kTable, stream_, stream_};
  Context context_{output_, stream_};
  worker::RunIslandOptions island_;
};

TEST_F(JoinSandboxTest, AllIslandsAreInsideButThoseOfThisMachinesRuns) {
  EXPECT_TRUE(NeedsSandbox(island_));
  island_.coordinator_address = "127.0.0.1:7400";
  EXPECT_FALSE(NeedsSandbox(island_));
  island_.security.tls.ca = "/pki/ca.crt";
  EXPECT_TRUE(NeedsSandbox(island_));
}

TEST_F(JoinSandboxTest, AnIslandOwnsItsStateButNotThatOfOthers) {
  const SandboxRequest request =
      Make("/home/anna/.local/state/atoll/enrolments/r.a");
  EXPECT_THAT(request.own_directories,
              AllOf(Contains(island_.work_directory),
                    Contains(island_.data_cache_directory),
                    Not(Contains(context_.state_directory))));
  EXPECT_THAT(request.paths.write,
              Contains("/home/anna/.local/state/atoll/enrolments/r.a"));
  EXPECT_EQ(request.temporary_directory, island_.work_directory + "/tmp");
  EXPECT_THAT(request.paths.read, Contains(context_.profile_path));
  EXPECT_THAT(request.paths.data, IsEmpty());
  EXPECT_TRUE(request.hides_sockets);
}

TEST_F(JoinSandboxTest, OwnKeysOfBucketsAreReadOnlyIfTheFlagSaysSo) {
  EXPECT_THAT(Make().paths.read,
              Not(Contains("/home/anna/.aws/credentials")));
  Settings::Sources sources;
  sources.flags = {{"data_credentials", "true"}};
  context_.settings = *Settings::Resolve(sources);
  EXPECT_THAT(Make().paths.read, Contains("/home/anna/.aws/credentials"));
}

TEST_F(JoinSandboxTest, WhatTheCommandLineNamesIsPermitted) {
  island_.data_path = "/home/anna/corpus/../text.bin";
  island_.data_roots = {"/data"};
  island_.trainer_path = "/run/user/1000/trainer.sock";
  island_.security.tls = {"/pki/tls.crt", "/pki/tls.key", "/pki/ca.crt"};
  island_.place.optimizer_directory = "/fast";
  const SandboxRequest request = Make();
  EXPECT_THAT(request.paths.data, ElementsAre("/home/anna/text.bin", "/data"));
  EXPECT_THAT(request.paths.sockets, ElementsAre("/run/user/1000"));
  EXPECT_THAT(request.paths.read,
              AllOf(Contains("/pki/tls.crt"), Contains("/pki/tls.key"),
                    Contains("/pki/ca.crt")));
  EXPECT_THAT(request.own_directories, Contains("/fast"));
}

TEST_F(JoinSandboxTest, ProcessesOfAnIslandReachEachOther) {
  island_.place.process_count = 2;
  const SandboxRequest request = Make();
  EXPECT_FALSE(request.hides_sockets);
  EXPECT_THAT(request.own_directories, Contains(context_.state_directory));
}

}  // namespace
}  // namespace atl::cli
