#include "tests/cuda_check/speed.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine::check {
namespace {

// The numbers are also in runner_test.py, for gpu_speed.py.
TEST(SpeedTest, OperationsLeaveOutATableThatIsOnlyCopied) {
  const double expected[] = {854770176, 7314370560};  // Of a token.
  int at = 0;
  for (const SpeedShape& shape : SpeedShapes()) {
    const int64_t count = MakeParameterLayout(shape.config).element_count;
    const double rows =
        static_cast<double>(shape.batch * shape.config.sequence_length_max);
    EXPECT_EQ(CountOperations(shape, count) / rows, expected[at++])
        << shape.name;
  }
}

TEST(SpeedTest, AStepIsMeasuredFromParametersThatWereDrawnBefore) {
  SpeedShape shape;
  shape.name = "tiny";
  shape.config.vocab_size = 50;
  shape.config.hidden_size = 16;
  shape.config.intermediate_size = 32;
  shape.config.layer_count = 1;
  shape.config.head_count = shape.config.kv_head_count = 2;
  shape.config.sequence_length_max = 8;
  PlainOps<float> ops;
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  Report report(out);
  const absl::Status status = MeasureSpeed(
      shape, ComputeType::kF32, 1, DrawParameters(shape), ops, report);
  std::fclose(out);
  const std::string line(text, size);
  std::free(text);
  EXPECT_TRUE(status.ok()) << status;
  for (const char* field : {"\"training\"", "\"mfu\": ", "\"loss\": "}) {
    EXPECT_NE(line.find(field), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace atl::engine::check
