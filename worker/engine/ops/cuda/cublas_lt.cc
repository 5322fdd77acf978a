#include "worker/engine/ops/cuda/cublas_lt.h"

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/shared_library.h"

namespace atl::engine::cuda {
namespace {

// The library's function behind ours.
template <auto* kOurs>
decltype(kOurs) theirs = nullptr;

absl::Status Open() {
  ASSIGN_OR_RETURN(
      const SharedLibrary library,
      SharedLibrary::Open(
          absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR),
          absl::StrCat("cuBLAS ", CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR)));
#define ATL_FIND(name) RETURN_IF_ERROR(library.Find(#name, theirs<name>))
  ATL_FIND(cublasLtCreate);
  ATL_FIND(cublasLtDestroy);
  ATL_FIND(cublasLtGetStatusString);
  ATL_FIND(cublasLtMatmul);
  ATL_FIND(cublasLtMatmulAlgoGetHeuristic);
  ATL_FIND(cublasLtMatmulDescCreate);
  ATL_FIND(cublasLtMatmulDescDestroy);
  ATL_FIND(cublasLtMatmulDescSetAttribute);
  ATL_FIND(cublasLtMatmulPreferenceCreate);
  ATL_FIND(cublasLtMatmulPreferenceDestroy);
  ATL_FIND(cublasLtMatmulPreferenceSetAttribute);
  ATL_FIND(cublasLtMatrixLayoutCreate);
  ATL_FIND(cublasLtMatrixLayoutDestroy);
#undef ATL_FIND
  return absl::OkStatus();
}

const absl::Status& Opened() {
  static const absl::Status status = Open();
  return status;
}

template <auto* kOurs, typename... A>
cublasStatus_t Forward(A... arguments) {
  if (!Opened().ok()) return CUBLAS_STATUS_NOT_INITIALIZED;
  return theirs<kOurs>(arguments...);
}

}  // namespace

absl::Status CheckCublasLt() { return Opened(); }

}  // namespace atl::engine::cuda

using atl::engine::cuda::Forward;
using atl::engine::cuda::Opened;
using atl::engine::cuda::theirs;

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const std::string why(Opened().message());
  return Opened().ok() ? theirs<cublasLtGetStatusString>(status) : why.c_str();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return Forward<cublasLtCreate>(handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Forward<cublasLtDestroy>(handle);
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
    const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
    cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
    cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
    const cublasLtMatmulAlgo_t* algorithm, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  return Forward<cublasLtMatmul>(handle, desc, alpha, a, layout_a, b, layout_b,
                                 beta, c, layout_c, d, layout_d, algorithm,
                                 workspace, workspace_bytes, stream);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked_count,
    cublasLtMatmulHeuristicResult_t results[], int* result_count) {
  return Forward<cublasLtMatmulAlgoGetHeuristic>(
      handle, desc, a, b, c, d, preference, asked_count, results, result_count);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return Forward<cublasLtMatmulDescCreate>(desc, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return Forward<cublasLtMatmulDescDestroy>(desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t value_bytes) {
  return Forward<cublasLtMatmulDescSetAttribute>(desc, attribute, value,
                                                 value_bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  return Forward<cublasLtMatmulPreferenceCreate>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  return Forward<cublasLtMatmulPreferenceDestroy>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t value_bytes) {
  return Forward<cublasLtMatmulPreferenceSetAttribute>(preference, attribute,
                                                       value, value_bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  return Forward<cublasLtMatrixLayoutCreate>(layout, type, rows, columns,
                                             stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Forward<cublasLtMatrixLayoutDestroy>(layout);
}
