#include "worker/engine/ops/cuda/cudnn_attention.h"

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/cudnn_api.h"
#include "worker/engine/ops/cuda/cudnn_plan.h"
#include "worker/engine/ops/cuda/plan/attention_graph.h"

namespace atl::engine::cuda {
namespace {

constexpr int64_t kLengthStep = 64;
constexpr size_t kPlanCountMax = 16;

class CudnnAttention final : public FusedAttention {
 public:
  CudnnAttention(const CudnnApi& api, cudnnHandle_t handle)
      : api_(api), handle_(handle) {}
  ~CudnnAttention() override {
    plans_.clear();
    (void)api_.destroy(handle_);
  }

  std::string name() const override {
    const size_t version = api_.get_version();
    return absl::StrCat("cuDNN ", version / 10000, ".", version / 100 % 100,
                        ".", version % 100);
  }

  absl::StatusOr<int64_t> ScratchBytes(const AttentionShape& shape) override {
    if (shape.sequence_length % kLengthStep != 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cuDNN attention needs a length that ", kLengthStep, " divides"));
    }
    auto found = plans_.find(MakeKey(shape));
    if (found == plans_.end()) {
      if (plans_.size() >= kPlanCountMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat("all ", kPlanCountMax, " cuDNN plans are in use"));
      }
      found = plans_
                  .emplace(MakeKey(shape),
                           CudnnPlan::Make(api_, MakeAttentionGraph(shape),
                                           {.handle = handle_}))
                  .first;
    }
    RETURN_IF_ERROR(found->second.status());
    return found->second->scratch_bytes();
  }

  absl::Status Attend(cudaStream_t stream, const AttentionShape& shape,
                      const uint16_t* qkv, uint16_t* out, float* log_sum,
                      void* scratch) override {
    const auto found = plans_.find(MakeKey(shape));
    if (found == plans_.end() || !found->second.ok()) {
      return absl::UnavailableError("no cuDNN plan: call ScratchBytes first");
    }
    if (stream != stream_) {
      RETURN_IF_ERROR(
          api_.ToStatus(api_.set_stream(handle_, stream), "taking a stream"));
      stream_ = stream;
    }
    const int64_t keys = shape.head_count * shape.head_dim;
    const int64_t values = keys + shape.kv_head_count * shape.head_dim;
    uint16_t* const row = const_cast<uint16_t*>(qkv);  // Read only.
    const auto memory_of = [&](GraphRole role) -> void* {
      switch (role) {
        case GraphRole::kQueries:
          return row;
        case GraphRole::kKeys:
          return row + keys;
        case GraphRole::kValues:
          return row + values;
        case GraphRole::kOut:
          return out;
        case GraphRole::kLogSum:
          return log_sum;
        case GraphRole::kWithin:
        case GraphRole::kScalar:
          break;
      }
      return nullptr;
    };
    return found->second->Run(handle_, memory_of, scratch);
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

  static Key MakeKey(const AttentionShape& s) {
    return {s.batch, s.sequence_length, s.head_count, s.kv_head_count,
            s.head_dim};
  }

  const CudnnApi& api_;
  const cudnnHandle_t handle_;
  cudaStream_t stream_ = nullptr;  // The handle's current stream.
  std::map<Key, absl::StatusOr<CudnnPlan>> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FusedAttention>> MakeCudnnAttention() {
  ASSIGN_OR_RETURN(const CudnnApi* const api, OpenCudnn());
  cudnnHandle_t handle = nullptr;
  RETURN_IF_ERROR(api->ToStatus(api->create(&handle), "starting"));
  return std::make_unique<CudnnAttention>(*api, handle);
}

}  // namespace atl::engine::cuda
