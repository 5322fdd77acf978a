#include "worker/core/pull_patience.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

class PullPatienceTest : public testing::Test {
 protected:
  PullPatienceTest() {
    v1::Layout& layout = *spec_.mutable_layout();
    layout.set_fragment_count(1);
    v1::TensorSpec& tensor = *layout.add_tensors();
    tensor.set_name("t");
    tensor.add_shape(10 * 4096);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }

  int64_t Patience() {
    const auto layout = RunLayout::Create(spec_.layout());
    EXPECT_TRUE(layout.ok()) << layout.status();
    return PullPatience(spec_, *layout, 0);
  }

  v1::RunSpec spec_;
};

TEST_F(PullPatienceTest, IsTheStalenessWhereVersionsTravelInFull) {
  EXPECT_EQ(Patience(), 0);
  spec_.mutable_schedule()->set_max_staleness(3);
  EXPECT_EQ(Patience(), 3);
}

TEST_F(PullPatienceTest, IsTheChainThatServersKeepWhereThereIsAView) {
  spec_.mutable_exchange()->set_down(v1::CODEC_BF16);
  EXPECT_EQ(Patience(), 2);
  spec_.mutable_exchange()->set_down(v1::CODEC_TOP_K);
  EXPECT_EQ(Patience(), 64);
  spec_.mutable_schedule()->set_max_staleness(100);
  EXPECT_EQ(Patience(), 100);
}

// Beyond it the island would train from an anchor that no merge accepts.
TEST_F(PullPatienceTest, IsTheStalenessOfAnAsyncRun) {
  spec_.mutable_exchange()->set_down(v1::CODEC_TOP_K);
  spec_.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  spec_.mutable_schedule()->set_max_staleness(3);
  EXPECT_EQ(Patience(), 3);
}

}  // namespace
}  // namespace atl::worker
