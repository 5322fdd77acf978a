#include "cli/kubernetes/report.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

ResourceInput Input() {
  ResourceInput input;
  input.model.element_count = 1000000;
  input.model.layer_count = 4;
  input.exchange.fragment_elements = {1000000};
  input.tokens_a_step = 1024;
  input.server_count = 3;
  input.island_count = 5;
  input.run.mutable_schedule()->set_timing(v1::TIMING_STRICT);
  return input;
}

TEST(ReportTest, ValuesHaveTheNumbersOfTheData) {
  const Json programs = ResourcesData(Input());
  const std::string values = ResourcesValues(Input());
  ASSERT_EQ(programs.size(), 3u);
  for (const Json& program : programs) {
    const std::string memory =
        absl::StrCat("memory: ", program["memory_mib"].get<int64_t>(), "Mi");
    EXPECT_THAT(values, HasSubstr(absl::StrCat("{requests: {", memory,
                                               "}, limits: {", memory, "}}")));
    EXPECT_THAT(values, HasSubstr(absl::StrCat(
                            program["disk_mib"].get<int64_t>(), "Mi")));
  }
  EXPECT_THAT(values, HasSubstr("replicas: 3\n"));
  EXPECT_THAT(values, HasSubstr("replicas: 5\n"));
}

TEST(ReportTest, StrictIslandsKeepAVolumeAndElasticOnesAreAJob) {
  ResourceInput input = Input();
  EXPECT_THAT(ResourcesValues(input), HasSubstr("kind: StatefulSet\n"));
  input.run.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  EXPECT_THAT(ResourcesValues(input), HasSubstr("kind: Job\n"));
}

TEST(ReportTest, TheTextSaysWhatIsMeasuredAndEndsWithTheValues) {
  const std::string text = ResourcesText(Input());
  EXPECT_THAT(text, HasSubstr("measured"));
  EXPECT_THAT(text, ::testing::EndsWith(ResourcesValues(Input())));
}

}  // namespace
}  // namespace atl::cli
