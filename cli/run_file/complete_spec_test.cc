#include "cli/run_file/complete_spec.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/layout.h"
#include "cli/output/error.h"
#include "cli/run_file/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kTensors[] = R"({"version": 1, "tensors": [
  {"name": "a", "shape": [4]}, {"name": "b", "shape": [2, 2]},
  {"name": "c", "shape": [3]}, {"name": "d", "shape": [5]}]})";

// Files of external models in a directory.
class CompleteSpecTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/complete_spec_", ::getpid());
    std::filesystem::create_directories(root_);
    Write("tensors.json", kTensors);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(root_, "/", name)) << text;
  }

  // A file of an external model that begins with `top` and ends with `rest`.
  RunFile Load(const std::string& rest = "",
               const std::string& top = "preset = \"laptop\"\n") {
    Write("run.toml", absl::StrCat(top,
                                   "[model]\narchitecture = \"external\"\n"
                                   "tensors = \"tensors.json\"\n",
                                   rest));
    absl::StatusOr<RunFile> run = LoadRunFile(root_ + "/run.toml", {});
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : RunFile();
  }

  std::string root_;
};

TEST_F(CompleteSpecTest, TheLayoutOfAnExternalModelIsItsListOfTensors) {
  RunFile run = Load();
  const absl::Status status = CompleteSpec(&run);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(run.spec.layout().tensors_size(), 4);
  EXPECT_EQ(run.spec.layout().fragment_count(), 1);
  EXPECT_EQ(run.spec.data().fingerprint(), "");
  EXPECT_FALSE(run.spec.init().import());
}

TEST_F(CompleteSpecTest, APresetThatCountsLayersMeansAFewFragments) {
  const auto count = [&](const std::string& preset, const std::string& rest) {
    RunFile run = Load(rest, absl::StrCat("preset = \"", preset, "\"\n"));
    const absl::Status status = CompleteLayout(&run);
    EXPECT_TRUE(status.ok()) << status;
    return run.spec.layout().fragment_count();
  };
  EXPECT_EQ(count("streaming", ""), 4);
  EXPECT_EQ(count("decoupled", ""), 4);
  EXPECT_EQ(count("streaming", "[layout]\nfragment_count = 2\n"), 2);
  EXPECT_EQ(count("diloco", ""), 1);
  EXPECT_EQ(count("diloco", "[layout]\nfragment_count = 3\n"), 3);
  std::string many = "{\"version\":1,\"tensors\":[";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&many, i == 0 ? "" : ",", "{\"name\":\"t", i,
                    "\",\"shape\":[2]}");
  }
  Write("tensors.json", many + "]}");
  EXPECT_EQ(count("streaming", ""), 8);
  EXPECT_EQ(count("decoupled", ""), 24);
}

TEST_F(CompleteSpecTest, NamesTheListThatIsMissingOrWrong) {
  RunFile run = Load("[layout]\nfragment_count = 9\n");
  const absl::Status wrong = CompleteSpec(&run);
  EXPECT_EQ(ToExitCode(wrong), ExitCode::kInvalidConfig);
  EXPECT_EQ(GetReason(wrong), "MODEL_INVALID");
  EXPECT_THAT(std::string(wrong.message()),
              HasSubstr(root_ + "/tensors.json: has 4 tensors"));
  std::filesystem::remove(root_ + "/tensors.json");
  const absl::Status missing = CompleteSpec(&run);
  EXPECT_EQ(ToExitCode(missing), ExitCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr(root_ + "/tensors.json"));
}

TEST_F(CompleteSpecTest, ABudgetOfTokensNeedsTheTokensOfASample) {
  RunFile run = Load("[schedule]\ntoken_count = 1000\n");
  EXPECT_THAT(std::string(CompleteSpec(&run).message()),
              HasSubstr("sequence_length is missing"));
  run = Load("sequence_length = 10\n[schedule]\ntoken_count = 1000\n");
  EXPECT_TRUE(CompleteSpec(&run).ok());
}

TEST_F(CompleteSpecTest, ImportsTheTensorsOfAnExternalModel) {
  RunFile run = Load("[init]\nmodel = \"model\"\n");
  ASSERT_TRUE(CompleteLayout(&run).ok());
  std::vector<float> parameters;
  for (int i = 0; i < 16; ++i) parameters.push_back(static_cast<float>(i));
  const auto sha256 =
      worker::SaveModel(run.spec, parameters, root_ + "/model");
  ASSERT_TRUE(sha256.ok()) << sha256.status();
  EXPECT_FALSE(std::filesystem::exists(root_ + "/model/config.json"));
  const absl::Status status = CompleteSpec(&run);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(run.spec.init().import());
  EXPECT_EQ(run.spec.init().fragment_digests_size(), 1);
  EXPECT_EQ(run.spec.model().architecture(), "external");
  Write("tensors.json",
        "{\"version\":1,\"tensors\":[{\"name\":\"other\",\"shape\":[16]}]}");
  EXPECT_EQ(GetReason(CompleteSpec(&run)), "MODEL_UNUSABLE");
}

TEST_F(CompleteSpecTest, SomeCommandsStartNoTrainer) {
  const absl::Status status = RefuseExternal(Load(), "`atoll dev up`");
  EXPECT_EQ(ToExitCode(status), ExitCode::kInvalidConfig);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trains a model of its own (architecture external)"));
  const absl::StatusOr<RunFile> laptop = LoadRunFile("laptop", {});
  ASSERT_TRUE(laptop.ok());
  EXPECT_TRUE(RefuseExternal(*laptop, "`atoll dev up`").ok());
}

}  // namespace
}  // namespace atl::cli
