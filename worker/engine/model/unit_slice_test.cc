#include "worker/engine/model/unit_slice.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/engine/model/model_config.h"

namespace atl::engine {
namespace {

void ExpectWrong(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(what), std::string::npos) << status;
}

TEST(UnitSliceTest, SaysWhatDoesNotDivide) {
  ModelConfig config{
      .intermediate_size = 30, .head_count = 4, .kv_head_count = 2};
  EXPECT_TRUE(ValidateSlice(config, {.tp_size = 2, .tp_rank = 1}).ok());
  ExpectWrong(ValidateSlice(config, {.tp_size = 2, .tp_rank = 2}), "no rank 2");
  ExpectWrong(ValidateSlice(config, {.tp_size = 3}), "heads (4)");
  ExpectWrong(ValidateSlice(config, {.tp_size = 4}), "key/value heads (2)");
  ExpectWrong(ValidateSlice(config, {.ep_size = 2}), "no experts");
  config.kv_head_count = 4;
  ExpectWrong(ValidateSlice(config, {.tp_size = 4}), "inner channels");
  config.architecture = Architecture::kMixtral;
  config.expert_count = 3;
  ExpectWrong(ValidateSlice(config, {.ep_size = 2}), "experts (3)");
  EXPECT_TRUE(ValidateBatch({.tp_size = 2, .cp_size = 2}, 1, 12).ok());
  ExpectWrong(ValidateBatch({.cp_size = 2}, 1, 6), "2 cp=4");
  ExpectWrong(ValidateBatch({.tp_size = 2}, 3, 5), "tp=2");
}

TEST(UnitSliceTest, RanksHaveEachPositionOnceAndAttendToAsManyKeys) {
  for (int cp : {1, 2, 3, 4}) {
    const int64_t length = 6 * 2 * cp;
    std::vector<int32_t> tokens(2 * length), all;
    std::iota(tokens.begin(), tokens.end(), 0);
    for (int rank = 0; rank < cp; ++rank) {
      const UnitSlice slice{.cp_size = cp, .cp_rank = rank};
      int64_t keys = 0, last = -1;
      for (const Range& run : SequenceRuns(slice, length)) {
        EXPECT_GT(run.begin, last) << "positions rise";
        last = run.end - 1;
        for (int64_t t = run.begin; t < run.end; ++t) keys += t + 1;
      }
      EXPECT_EQ(keys, length * (length + 1) / 2 / cp);
      const std::vector<int32_t> mine =
          CutSequences(slice, 2, length, tokens.data());
      EXPECT_EQ(static_cast<int64_t>(mine.size()), 2 * length / cp);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, tokens);
  }
}

}  // namespace
}  // namespace atl::engine
