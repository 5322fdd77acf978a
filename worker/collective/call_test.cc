#include "worker/collective/call.h"

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace atl::collective {
namespace {

void ExpectWrong(const Call& call, absl::string_view why) {
  const absl::Status status = ValidateCall(call, /*rank=*/1, /*size=*/3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(why), std::string::npos) << status;
}

TEST(CallTest, RefusesWhatMakesNoSense) {
  float x[9] = {};
  ExpectWrong(Call::Broadcast(DataType::kF32, x, 1, 3), "no such root");
  ExpectWrong(Call::Broadcast(DataType::kF32, x, 1, -1), "no such root");
  ExpectWrong(Call::AllGather(DataType::kF32, x, x, -1), "negative");
  ExpectWrong(Call::AllGather(DataType::kF32, x, nullptr, 1), "missing");
  ExpectWrong(Call::Scatter(DataType::kF32, x, nullptr, 1, 0), "missing");
  ExpectWrong(Call::AllReduce(DataType::kBytes, Reduction::kSum, x, x, 1),
              "cannot be reduced");
  ExpectWrong(Call::AllToAllUneven(DataType::kF32, x, x, {1, 1}, {1, 1, 1}),
              "needs 3 counts");
  ExpectWrong(Call::AllToAllUneven(DataType::kF32, x, x, {1, 1, 1}, {1, -1, 1}),
              "negative");
  ExpectWrong(Call::Transfers({SendTo(1, x, 4)}), "itself");
  ExpectWrong(Call::Transfers({SendTo(3, x, 4)}), "no rank 3");
  ExpectWrong(Call::Transfers({ReceiveFrom(0, nullptr, 4)}), "missing");
}

TEST(CallTest, AsksOnlyForTheBuffersThatARankUses) {
  float x[9] = {};
  EXPECT_TRUE(
      ValidateCall(Call::Scatter(DataType::kF32, nullptr, x, 1, 0), 1, 3).ok());
  EXPECT_TRUE(
      ValidateCall(Call::Gather(DataType::kF32, x, nullptr, 1, 0), 1, 3).ok());
  EXPECT_FALSE(
      ValidateCall(Call::Gather(DataType::kF32, x, nullptr, 1, 1), 1, 3).ok());
  EXPECT_TRUE(
      ValidateCall(Call::AllGather(DataType::kF32, nullptr, nullptr, 0), 1, 3)
          .ok());
}

TEST(CallTest, SaysWhatItIs) {
  EXPECT_EQ(Describe(Call::AllReduce(DataType::kBf16, Reduction::kMax, nullptr,
                                     nullptr, 7)),
            "all-reduce max of 7 bf16");
  EXPECT_EQ(Describe(Call::Gather(DataType::kBytes, nullptr, nullptr, 7, 2)),
            "gather of 7 bytes with root 2");
}

}  // namespace
}  // namespace atl::collective
