#include "worker/engine/ops/cuda/make_cuda_ops.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/cudnn_attention.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/cuda/plan/recipe_cache.h"

namespace atl::engine::cuda {
namespace {

// All recipes are dropped at this number: each step has new expert shapes.
constexpr size_t kRecipeCountMax = 4096;
// NVIDIA's advice for Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

absl::Status LtStatus(cublasStatus_t error, absl::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cuBLASLt failed in ", what, ": ",
                                             cublasLtGetStatusString(error)));
}

template <typename T, cublasStatus_t (*kDestroy)(T)>
struct Owner {
  using pointer = T;
  void operator()(T value) const { (void)kDestroy(value); }
};
template <typename T, cublasStatus_t (*kDestroy)(T)>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Owner<T, kDestroy>>;

using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Desc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference =
    Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// All of a product but the pointers.
struct Recipe {
  Desc desc;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm = {};
  bool found = false;  // False: the library has no algorithm.
};

// Kind, m, n, k, bf16, and the common alignment of all pointers.
using Key = std::tuple<ProductKind, int64_t, int64_t, int64_t, bool, int>;

absl::StatusOr<Layout> MakeLayout(bool is_bf16, int64_t rows, int64_t columns,
                                  int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  RETURN_IF_ERROR(LtStatus(
      cublasLtMatrixLayoutCreate(&layout, is_bf16 ? CUDA_R_16BF : CUDA_R_32F,
                                 static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), stride),
      "describing a matrix"));
  return Layout(layout);
}

template <typename T>
absl::Status Set(cublasLtMatmulDesc_t desc,
                 cublasLtMatmulDescAttributes_t attribute, T value) {
  return LtStatus(
      cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)),
      "describing a product");
}
template <typename T>
absl::Status Prefer(cublasLtMatmulPreference_t preference,
                    cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return LtStatus(cublasLtMatmulPreferenceSetAttribute(preference, attribute,
                                                       &value, sizeof(value)),
                  "asking for an algorithm");
}

// Matrix products by cuBLASLt: f32 without TF32, bfloat16 natively.
//
// A shape's algorithm is chosen once. Those that sum atomically are excluded,
// so same inputs give the same bits. If none is left, our own kernel runs.
class LtMatmul final : public Matmul {
 public:
  LtMatmul(int device, Handle handle, void* workspace)
      : handle_(std::move(handle)),
        workspace_(workspace),
        fallback_(MakeKernelMatmul(device)) {}
  ~LtMatmul() override { (void)cudaFree(workspace_); }

  absl::Status Multiply(cudaStream_t stream, ProductKind kind, int64_t m,
                        int64_t n, int64_t k, bool is_bf16, const void* first,
                        const void* second, float* out,
                        bool accumulate) override {
    const int alignment = std::min(
        {FindAlignment(first), FindAlignment(second), FindAlignment(out)});
    const Key key(kind, m, n, k, is_bf16, alignment);
    const Recipe* known = recipes_.Find(key);
    if (known == nullptr) {
      ASSIGN_OR_RETURN(Recipe made, MakeRecipe(PlanProduct(kind, m, n, k),
                                               is_bf16, alignment));
      known = recipes_.Add(key, std::move(made));
    }
    const Recipe& recipe = *known;
    if (!recipe.found) {
      fallbacks_.try_emplace(
          kind, absl::StrCat("cuBLASLt has no algorithm for m ", m, ", n ", n,
                             ", k ", k, ", alignment ", alignment));
      return fallback_->Multiply(stream, kind, m, n, k, is_bf16, first, second,
                                 out, accumulate);
    }
    const float one = 1, keep = accumulate ? 1 : 0;
    return LtStatus(
        cublasLtMatmul(handle_.get(), recipe.desc.get(), &one, first,
                       recipe.a.get(), second, recipe.b.get(), &keep, out,
                       recipe.d.get(), out, recipe.d.get(), &recipe.algorithm,
                       workspace_, kWorkspaceBytes, stream),
        "a product");
  }

  std::map<ProductKind, std::string> fallbacks() const override {
    return fallbacks_;
  }

 private:
  absl::StatusOr<Recipe> MakeRecipe(const ProductPlan& plan, bool is_bf16,
                                    int alignment) const {
    Recipe recipe;
    cublasLtMatmulDesc_t desc = nullptr;
    RETURN_IF_ERROR(LtStatus(
        cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product"));
    recipe.desc.reset(desc);
    const cublasOperation_t as_is = CUBLAS_OP_N, across = CUBLAS_OP_T;
    RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_TRANSA,
                        plan.transpose_a ? across : as_is));
    RETURN_IF_ERROR(Set(desc, CUBLASLT_MATMUL_DESC_TRANSB,
                        plan.transpose_b ? across : as_is));
    ASSIGN_OR_RETURN(recipe.a,
                     MakeLayout(is_bf16, plan.transpose_a ? plan.k : plan.m,
                                plan.transpose_a ? plan.m : plan.k, plan.lda));
    ASSIGN_OR_RETURN(recipe.b,
                     MakeLayout(is_bf16, plan.transpose_b ? plan.n : plan.k,
                                plan.transpose_b ? plan.k : plan.n, plan.ldb));
    ASSIGN_OR_RETURN(recipe.d, MakeLayout(false, plan.m, plan.n, plan.ldd));

    cublasLtMatmulPreference_t made = nullptr;
    RETURN_IF_ERROR(LtStatus(cublasLtMatmulPreferenceCreate(&made),
                             "asking for an algorithm"));
    const Preference preference(made);
    RETURN_IF_ERROR(Prefer(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                           uint64_t{kWorkspaceBytes}));
    // All but in-place sums, which are atomic.
    RETURN_IF_ERROR(Prefer(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                    CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}));
    const uint32_t bytes = static_cast<uint32_t>(alignment);
    for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      RETURN_IF_ERROR(Prefer(made, attribute, bytes));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), desc, recipe.a.get(), recipe.b.get(), recipe.d.get(),
        recipe.d.get(), made, 1, &result, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return recipe;
    RETURN_IF_ERROR(LtStatus(status, "asking for an algorithm"));
    recipe.found = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    recipe.algorithm = result.algo;
    return recipe;
  }

  const Handle handle_;
  void* const workspace_;
  const std::unique_ptr<Matmul> fallback_;
  RecipeCache<Key, Recipe> recipes_{kRecipeCountMax};
  std::map<ProductKind, std::string> fallbacks_;
};

// `device` is the calling thread's.
absl::StatusOr<std::unique_ptr<Matmul>> MakeLtMatmul(int device) {
  cublasLtHandle_t made = nullptr;
  RETURN_IF_ERROR(LtStatus(cublasLtCreate(&made), "starting"));
  Handle handle(made);
  void* workspace = nullptr;
  RETURN_IF_ERROR(ToStatus(cudaMalloc(&workspace, kWorkspaceBytes),
                           "allocating cuBLASLt's workspace", device));
  return std::make_unique<LtMatmul>(device, std::move(handle), workspace);
}

}  // namespace

absl::StatusOr<int> DeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat(
        "no CUDA device can be used here: ", cudaGetErrorString(error)));
  }
  if (count == 0) {
    return absl::UnavailableError("this machine has no CUDA device");
  }
  return count;
}

absl::StatusOr<std::unique_ptr<CudaOps>> MakeCudaOps(
    int device, ComputeType compute, const CudaOptions& options) {
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), "selecting it", device));
  ASSIGN_OR_RETURN(std::unique_ptr<Matmul> matmul, MakeLtMatmul(device));
  std::unique_ptr<FusedAttention> attention;
  if (compute == ComputeType::kBf16 && options.fused_attention) {
    // Without cuDNN our own kernels compute attention.
    auto made = MakeCudnnAttention();
    if (made.ok()) attention = *std::move(made);
  }
  return CudaOps::Create(device, compute, std::move(matmul), options,
                         std::move(attention));
}

}  // namespace atl::engine::cuda
