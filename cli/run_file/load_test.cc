#include "cli/run_file/load.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
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
      absl::StrCat(::testing::TempDir(), "/My_run.2-", ::getpid(), ".toml");
  std::ofstream(path) << "preset = \"laptop\"\n[data]\npath = \"text\"\n";
  absl::StatusOr<RunFile> run = LoadRunFile(path, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run_id, absl::StrCat("my-run-2-", ::getpid()));
  EXPECT_EQ(run->spec.data().path()[0], '/');
  ::unlink(path.c_str());
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
