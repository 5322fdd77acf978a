#include "worker/island/island_state.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

// A trainer with all parameters in one array, which the test trains.
class FakeTrainer final : public IslandTrainer {
 public:
  explicit FakeTrainer(std::vector<float>& values) : values_(values) {}

  std::vector<IndexRange> held() const override {
    return {{0, static_cast<int64_t>(values_.size())}};
  }
  void set_before_write(std::function<void()> before_write) override {}
  absl::Status Acquire(absl::Span<const int32_t> fragments,
                       LocalAccess access) override {
    return absl::OkStatus();
  }
  absl::Span<float> Local(int32_t fragment, const HeldPiece& piece) override {
    return absl::MakeSpan(values_).subspan(piece.held_offset,
                                           piece.element_count);
  }
  void MarkWritten(int32_t fragment) override {}
  absl::StatusOr<StepResult> Train(const StepRequest& request) override {
    return StepResult();
  }
  absl::StatusOr<EvaluationResult> Evaluate(int64_t version) override {
    return EvaluationResult();
  }
  absl::StatusOr<TrainerState> Save(const std::string& save_id) override {
    return TrainerState();
  }
  absl::Status Load(const TrainerState& state) override {
    return absl::OkStatus();
  }
  absl::Status Reset() override { return absl::OkStatus(); }

 private:
  std::vector<float>& values_;
};

// A weight, and a running variance of one element.
v1::RunSpec MakeSpec() {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(1);
  for (const auto tensor_class :
       {v1::TENSOR_CLASS_MATRIX, v1::TENSOR_CLASS_BUFFER}) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor.set_name(tensor_class == v1::TENSOR_CLASS_BUFFER ? "variance" : "w");
    tensor.add_shape(1);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(tensor_class);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    tensor.mutable_init()->set_value(1);
  }
  spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
  spec.mutable_outer()->set_learning_rate(0.5);
  spec.mutable_schedule()->set_overlap_step_count(1);
  spec.mutable_schedule()->set_inner_step_count(2);
  spec.mutable_schedule()->set_eager(true);
  return spec;
}

TEST(IslandStateTest, AnEagerIslandPredictsParametersAndNoBuffers) {
  std::vector<float> local(2);
  const v1::RunSpec spec = MakeSpec();
  auto state = IslandState::Create(spec, std::make_unique<FakeTrainer>(local));
  ASSERT_TRUE(state.ok()) << state.status();
  (*state)->InitAnchors(spec);
  ASSERT_TRUE((*state)->BeginRound().ok());
  EXPECT_EQ(local, (std::vector<float>{1, 1}));

  local = {0.5f, 0.5f};  // Trained, and pushed.
  (*state)->Foresee(0, 0.5);
  EXPECT_EQ(local, (std::vector<float>{0.875f, 0.5f})) << "1 - lr w g, and x";
  std::vector<float> foreseen, momentum;
  (*state)->ReadForeseen(0, foreseen, momentum);
  EXPECT_EQ(foreseen, local) << "a repeated push sets what it left";

  // A correction by V - P could make the variance negative.
  local = {0.75f, 0.125f};
  const absl::Span<float> anchor = (*state)->FragmentBuffer(0);
  anchor[0] = 0.625f;
  anchor[1] = 0.25f;
  (*state)->SetAnchor(0);
  ASSERT_TRUE((*state)->ApplyAnchor(0, /*adopt=*/false).ok());
  EXPECT_EQ(local, (std::vector<float>{0.5f, 0.25f}));
}

}  // namespace
}  // namespace atl::worker
