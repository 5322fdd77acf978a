#include "cli/curves/curves.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "base/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

absl::Time Second(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

v1::Round Round(int64_t commit_seq, double commit_second, int64_t tokens) {
  v1::Round round;
  round.set_commit_seq(commit_seq);
  *round.mutable_open_time() = ToProto(Second(commit_second - 5));
  *round.mutable_seal_time() = ToProto(Second(commit_second - 1));
  *round.mutable_commit_time() = ToProto(Second(commit_second));
  round.set_merged_token_count(tokens);
  round.set_training_loss(2);
  round.set_outer_gradient_norm(3);
  return round;
}

std::vector<std::string> Texts(const std::vector<CurvePoint>& points) {
  std::vector<std::string> texts;
  for (const CurvePoint& point : points) {
    texts.push_back(absl::StrCat(point.tag, "@", point.step, "=", point.value));
  }
  return texts;
}

TEST(CurvesTest, ARoundHasAPointOnEachCurveAtItsCommit) {
  EXPECT_THAT(Texts(PointsOf(Round(7, 100, 50), 12.5)),
              UnorderedElementsAre(
                  "loss_metrics/global_avg_loss@7=2", "throughput(tps)@7=12.5",
                  "outer/gradient_norm@7=3", "rounds/merged_tokens@7=50",
                  "rounds/collect_seconds@7=4", "rounds/merge_seconds@7=1"));
}

TEST(CurvesTest, ATrainersOwnNumbersHaveCurves) {
  v1::Round round = Round(7, 100, 50);
  (*round.mutable_metrics())["accuracy"] = 0.5;
  EXPECT_THAT(Texts(PointsOf(round, {})),
              testing::Contains("metrics/accuracy@7=0.5"));
}

TEST(CurvesTest, WhatIsNotKnownHasNoPoint) {
  v1::Round round = Round(7, 100, 50);
  round.clear_training_loss();
  EXPECT_THAT(Texts(PointsOf(round, {})),
              UnorderedElementsAre(
                  "outer/gradient_norm@7=3", "rounds/merged_tokens@7=50",
                  "rounds/collect_seconds@7=4", "rounds/merge_seconds@7=1"));
}

class CurvesOnFilesTest : public ::testing::Test {
 protected:
  Curves Open() {
    return Curves(*EventWriter::Open(files_, {"/d", "u", "h", Second(1)}),
                  *CsvWriter::Open(files_, "/c.csv", "u"));
  }

  // Values of `tag`: "step=value".
  std::vector<std::string> Events(const std::string& tag) {
    std::vector<std::string> found;
    const std::string bytes =
        *ReadFile(files_, "/d/events.out.tfevents.1.h.u.atoll");
    for (const curves::Event& event : ReadEventRecords(bytes).events) {
      for (const auto& value : event.summary().value()) {
        if (value.tag() != tag) continue;
        found.push_back(absl::StrCat(event.step(), "=", value.simple_value()));
      }
    }
    return found;
  }

  FakeFileSystem files_;
};

TEST_F(CurvesOnFilesTest, ThroughputIsOfTheTimeSinceTheCommitBefore) {
  Curves curves = Open();
  ASSERT_TRUE(curves.Add(Round(1, 10, 100)).ok());
  ASSERT_TRUE(curves.Add(Round(2, 30, 500)).ok());
  // Commit 3 is not known, so commit 4 has no rate.
  ASSERT_TRUE(curves.Add(Round(4, 50, 900)).ok());
  EXPECT_THAT(Events("throughput(tps)"), ElementsAre("1=20", "2=20"));
}

TEST_F(CurvesOnFilesTest, ASecondWatchWritesNothingTwice) {
  v1::Round evaluated = Round(2, 30, 500);
  evaluated.mutable_evaluation()->set_commit_seq(2);
  evaluated.mutable_evaluation()->set_loss(1.5);
  v1::Evaluation failed;  // It is no point.
  failed.set_commit_seq(3);
  failed.set_loss(std::nan(""));
  failed.set_failure("the held-out loss is nan");
  for (int i = 0; i < 2; ++i) {
    Curves curves = Open();
    // The listed rounds, then the events of the same rounds.
    for (int j = 0; j < 2; ++j) {
      ASSERT_TRUE(curves.Add(Round(1, 10, 100)).ok());
      ASSERT_TRUE(curves.Add(evaluated).ok());
      ASSERT_TRUE(curves.Add(evaluated.evaluation(), Second(31)).ok());
      ASSERT_TRUE(curves.Add(failed, Second(32)).ok());
    }
  }
  EXPECT_THAT(Events("loss_metrics/global_avg_loss"),
              ElementsAre("1=2", "2=2"));
  EXPECT_THAT(Events("loss_metrics/outer_validation_loss"),
              ElementsAre("2=1.5"));
  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(files_, "/c.csv"), '\n');
  EXPECT_EQ(lines.size(), 4u);
}

TEST_F(CurvesOnFilesTest, ARestoreIsMarkedOnceAndTheNextCommitHasNoRate) {
  v1::Restore restore;
  restore.set_commit_seq(3);
  restore.set_cut_commit_seq(2);
  for (int i = 0; i < 2; ++i) {
    Curves curves = Open();
    ASSERT_TRUE(curves.Add(Round(1, 10, 100)).ok());
    if (i == 0) {
      ASSERT_TRUE(curves.Add(Round(2, 30, 500)).ok());
    }
    ASSERT_TRUE(curves.Add(restore).ok());
    ASSERT_TRUE(curves.Add(Round(4, 50, 600)).ok());
    ASSERT_TRUE(curves.Add(Round(5, 70, 1000)).ok());
  }
  EXPECT_THAT(Events("run/restored_to_commit"), ElementsAre("3=1"));
  EXPECT_THAT(Events("throughput(tps)"), ElementsAre("1=20", "2=20", "5=20"));
}

}  // namespace
}  // namespace atl::cli
