#include "tests/cuda_check/report.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::engine::check {
namespace {

TEST(ReportTest, PrintsALineACheckAndCountsThoseOfOthersToo) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  Report report(out);
  report.Check("adding", absl::OkStatus());
  EXPECT_FALSE(
      report.Check("a \"name\"", [] { return absl::InternalError("1\n2"); }));
  report.Relay("{\"check\": \"x\", \"passed\": true}");
  report.Control("a control", absl::InternalError("why"));
  report.Measure("speed", {{"tokens_per_second", "12.5"}});
  report.PrintTotals();
  std::fclose(out);
  std::string lines(text, size);
  const size_t seconds = lines.find(", \"seconds\": ");
  ASSERT_NE(seconds, std::string::npos) << lines;
  lines.erase(seconds, lines.find('}', seconds) - seconds);
  EXPECT_EQ(
      lines,
      "{\"check\": \"adding\", \"passed\": true}\n"
      "{\"begin\": \"a \\\"name\\\"\"}\n"
      "{\"check\": \"a \\\"name\\\"\", \"passed\": false, \"error\": "
      "\"INTERNAL: 1\\u000a2\"}\n"
      "{\"check\": \"x\", \"passed\": true}\n"
      "{\"check\": \"a control\", \"state\": \"not possible on one GPU\", "
      "\"error\": \"INTERNAL: why\"}\n"
      "{\"measure\": \"speed\", \"tokens_per_second\": 12.5}\n"
      "2 passed, 1 failed\n");
  std::free(text);
  EXPECT_EQ(report.failed(), 1);
  EXPECT_EQ(report.not_possible(), 1);
}

}  // namespace
}  // namespace atl::engine::check
