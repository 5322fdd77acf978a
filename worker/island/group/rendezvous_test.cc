#include "worker/island/group/rendezvous.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

class RendezvousTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/rendezvous_", ::getpid());
    std::filesystem::create_directories(directory_);
    options_.run_id = "run";
    options_.island_id = "rack";
    options_.address = "127.0.0.1:29500";
    options_.machine_secret_path = absl::StrCat(directory_, "/state/secret");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path) << bytes;
    return path;
  }
  void ExpectRefused(absl::StatusCode code, absl::string_view why) {
    const absl::Status status = MakeRendezvous(options_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  }

  std::string directory_;
  RendezvousOptions options_;
};

TEST_F(RendezvousTest, OneMachineHasASecretOfItsOwn) {
  // One process creates it, and all get the same.
  std::vector<absl::StatusOr<Rendezvous>> made(8,
                                               absl::UnknownError("not made"));
  std::vector<std::thread> threads;
  for (auto& one : made) {
    threads.emplace_back([&] { one = MakeRendezvous(options_); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : made) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->secret, made[0]->secret);
    EXPECT_TRUE(one->in_the_clear);
  }
  struct stat found = {};
  ASSERT_EQ(::stat(options_.machine_secret_path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_size, 32);
  const std::filesystem::directory_iterator files(
      absl::StrCat(directory_, "/state"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
  // Another machine has another secret.
  options_.machine_secret_path += "2";
  EXPECT_NE(MakeRendezvous(options_)->secret, made[0]->secret);
}

TEST_F(RendezvousTest, AMachinesSecretThatOthersReadIsNone) {
  ASSERT_TRUE(MakeRendezvous(options_).ok());
  ASSERT_EQ(::chmod(options_.machine_secret_path.c_str(), 0644), 0);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "other users");
}

TEST_F(RendezvousTest, ASecretIsOfItsFileItsRunAndItsIsland) {
  options_.secret_path = Write("secret", "0123456789abcdef");
  const std::string secret = MakeRendezvous(options_)->secret;
  EXPECT_EQ(MakeRendezvous(options_)->secret, secret);
  // Ignores the newline of an editor.
  options_.secret_path = Write("again", "0123456789abcdef\n");
  EXPECT_EQ(MakeRendezvous(options_)->secret, secret);
  RendezvousOptions other = options_;
  other.run_id = "walk";
  EXPECT_NE(MakeRendezvous(other)->secret, secret);
  other = options_;
  other.island_id = "shelf";
  EXPECT_NE(MakeRendezvous(other)->secret, secret);
  other = options_;
  other.secret_path = Write("other", "0123456789abcdeF");
  EXPECT_NE(MakeRendezvous(other)->secret, secret);
  // It precedes the key, and the key precedes the machine's.
  options_.tls_key_path = Write("key", "a private key of an island");
  EXPECT_EQ(MakeRendezvous(options_)->secret, secret);
  options_.secret_path = "";
  const std::string of_key = MakeRendezvous(options_)->secret;
  EXPECT_NE(of_key, secret);
  options_.machine_secret_path = "/nowhere/at/all";
  EXPECT_EQ(MakeRendezvous(options_)->secret, of_key);
}

TEST_F(RendezvousTest, OffTheMachineASecretHasToBeGivenAndBytesAreEncrypted) {
  options_.address = "10.0.0.1:29500";
  ExpectRefused(absl::StatusCode::kInvalidArgument, "--rendezvous-secret FILE");
  options_.secret_path = Write("secret", "0123456789abcdef");
  EXPECT_FALSE(MakeRendezvous(options_)->in_the_clear);
  options_.insecure = true;
  EXPECT_TRUE(MakeRendezvous(options_)->in_the_clear);
  options_.secret_path = "";
  EXPECT_TRUE(MakeRendezvous(options_)->in_the_clear);
}

TEST_F(RendezvousTest, WhatCanBeGuessedIsRefused) {
  options_.secret_path = Write("secret", "hunter2\n");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has 7 bytes");
  options_.secret_path = "/nowhere";
  ExpectRefused(absl::StatusCode::kNotFound, "/nowhere");
  options_.secret_path = "";
  options_.address = "nowhere";
  ExpectRefused(absl::StatusCode::kInvalidArgument, "HOST:PORT");
}

}  // namespace
}  // namespace atl::worker
