#include "cli/run_file/load.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(LoadRunFileTest, APresetIsFoundByItsName) {
  absl::StatusOr<RunFile> run = LoadRunFile("laptop", {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run_id, "laptop");
}

TEST(LoadRunFileTest, AFilesNameIsTheRunsId) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/my-run-2-", ::getpid(), ".toml");
  std::ofstream(path) << "preset = \"laptop\"\n[data]\npath = \"text\"\n";
  absl::StatusOr<RunFile> run = LoadRunFile(path, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run_id, absl::StrCat("my-run-2-", ::getpid()));
  EXPECT_EQ(run->spec.data().path()[0], '/');
  ::unlink(path.c_str());
}

TEST(IdFromNameTest, TwoNamesNeverShareAnId) {
  EXPECT_EQ(IdFromName("spring-2"), "spring-2");
  const std::string names[] = {
      "my run", "my_run", "My-run", "MY-RUN",  "-my-run", "--help",
      "",       "-",      "----",   "模型", "模样", std::string(64, 'a'),
      std::string(65, 'a')};
  std::set<std::string> ids = {"my-run", "run", std::string(63, 'a')};
  for (const std::string& name : names) {
    const std::string id = IdFromName(name);
    EXPECT_TRUE(ValidateId("", id).ok()) << id;
    EXPECT_NE(id[0], '-') << id;
    EXPECT_EQ(IdFromName(name), id);
    EXPECT_TRUE(ids.insert(id).second) << name << " gives " << id;
  }
  EXPECT_TRUE(absl::StartsWith(IdFromName("My_Run.2"), "my-run-2-"));
  EXPECT_TRUE(absl::StartsWith(IdFromName("模型"), "run-"));
}

TEST(LoadRunFileTest, ANameThatIsNoRunFileIsCalledWhatItIs) {
  const std::string root =
      absl::StrCat(::testing::TempDir(), "/load_", ::getpid());
  std::filesystem::create_directories(root);
  const auto message = [](const std::string& path) {
    const absl::Status status = LoadRunFile(path, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(message("-"),
            "- is the standard input, and a run file is a regular file");
  EXPECT_TRUE(absl::StrContains(message(root), "is a directory"));
  const std::string pipe = root + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::StrContains(message(pipe), "is a pipe"));
  EXPECT_TRUE(absl::StrContains(message("/dev/null"), "is a device"));
  const std::string loop = root + "/loop.toml";
  ASSERT_EQ(::symlink(loop.c_str(), loop.c_str()), 0);
  const absl::Status looped = LoadRunFile(loop, {}).status();
  EXPECT_FALSE(absl::IsNotFound(looped));
  EXPECT_TRUE(absl::StrContains(looped.message(), "loop.toml")) << looped;
  const std::string closed = root + "/closed.toml";
  std::ofstream(closed) << "preset = \"laptop\"\n";
  ASSERT_EQ(::chmod(closed.c_str(), 0), 0);
  if (::geteuid() != 0) {
    EXPECT_TRUE(
        absl::StrContains(LoadRunFile(closed, {}).status().message(), closed));
    EXPECT_FALSE(absl::IsNotFound(LoadRunFile(closed, {}).status()));
  }
  std::filesystem::remove_all(root);
}

TEST(LoadRunFileTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(ToExitCode(LoadRunFile("/no/such.toml", {}).status()),
            ExitCode::kNotFound);
}

TEST(ApplyChangesTest, TheNumberOfIslandsTakesItsDataShardsWithIt) {
  absl::StatusOr<RunFile> run =
      LoadRunFile("laptop", {.run_id = "x",
                             .server_count = 3,
                             .island_count = 1,
                             .data_path = "/somewhere"});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run_id, "x");
  EXPECT_EQ(run->spec.server_count(), 3);
  EXPECT_EQ(run->spec.schedule().island_count_min(), 1);
  EXPECT_EQ(run->spec.schedule().min_quorum(), 1);
  EXPECT_EQ(run->spec.data().data_shard_count(), 1);
  EXPECT_EQ(run->spec.data().path(), "/somewhere");
}

TEST(ApplyChangesTest, AnExternalModelHasNoData) {
  RunFile run;
  run.spec.mutable_model()->set_architecture("external");
  EXPECT_TRUE(ApplyChanges({.run_id = "x"}, &run).ok());
  const absl::Status status = ApplyChanges({.data_path = "/text"}, &run);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 6), "--data") << status;
}

TEST(ApplyChangesTest, DataByUrlHasNoPath) {
  RunFile run;
  run.spec.mutable_data()->set_url("s3://bucket/manifest.json");
  const absl::Status status = ApplyChanges({.data_path = "/text"}, &run);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 6), "--data") << status;
}

TEST(ApplyChangesTest, ABudgetOfTokensIsInPlaceOfTheFilesRounds) {
  absl::StatusOr<RunFile> run = LoadRunFile("laptop", {.tokens = "1.5M"});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->spec.schedule().token_count(), 1500000);
  EXPECT_EQ(run->spec.schedule().round_count(), 0);
  for (const char* tokens : {"0", "-5", "many", "1.5 M"}) {
    const absl::Status status = LoadRunFile("laptop", {.tokens = tokens}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tokens;
    EXPECT_EQ(status.message().substr(0, 8), "--tokens") << status;
  }
}

}  // namespace
}  // namespace atl::cli
