#include "worker/collective/local/local_world.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "worker/collective/testing/behaviour.h"

namespace atl::collective {
namespace {

class Threads : public TestWorld {
 public:
  Threads(int size, const WorldOptions& options) : world_(size, options) {
    ranks_ = world_.TakeRanks();
  }
  ~Threads() override { ranks_.clear(); }

 private:
  LocalWorld world_;
};

WorldKind Of(int size) {
  return {"threads" + std::to_string(size), size,
          [size](const WorldOptions& options) {
            return std::make_unique<Threads>(size, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Local, BehaviourTest,
                         testing::Values(Of(2), Of(3), Of(4), Of(9)),
                         testing::PrintToStringParamName());

TEST(LocalWorldTest, OneRankAloneNeedsNobody) {
  LocalWorld world(1);
  auto ranks = world.TakeRanks();
  float in[2] = {1, 2};
  float out[2] = {};
  EXPECT_TRUE(
      ranks[0]
          ->Run(Call::AllReduce(DataType::kF32, Reduction::kSum, in, out, 2))
          .ok());
  EXPECT_EQ(out[1], 2);
  EXPECT_TRUE(ranks[0]->Barrier().ok());
}

}  // namespace
}  // namespace atl::collective
