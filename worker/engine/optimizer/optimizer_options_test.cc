#include "worker/engine/optimizer/optimizer_options.h"

#include <functional>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(OptimizerOptionsTest, RefusesEachBadFieldAndNamesIt) {
  EXPECT_TRUE(ValidateOptimizerOptions({}).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    std::string field;
    std::function<void(OptimizerOptions&)> spoil;
  } cases[] = {
      {"clip_norm", [&](auto& o) { o.clip_norm = nan; }},
      {"beta1", [&](auto& o) { o.beta1 = -0.1; }},
      {"beta2", [&](auto& o) { o.beta2 = 1.0; }},
      {"epsilon", [&](auto& o) { o.epsilon = 0; }},
      {"weight_decay", [&](auto& o) { o.weight_decay = nan; }},
  };
  for (const auto& c : cases) {
    OptimizerOptions options;
    c.spoil(options);
    const absl::Status status = ValidateOptimizerOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_NE(std::string(status.message()).find(c.field), std::string::npos);
  }
}

TEST(OptimizerOptionsTest, SgdDoesNotReadWhatIsAdamWs) {
  OptimizerOptions options{.kind = OptimizerKind::kSgd, .beta1 = 7};
  EXPECT_TRUE(ValidateOptimizerOptions(options).ok());
}

}  // namespace
}  // namespace atl::engine
