// This machine's library, which needs no device for these calls.

#include "worker/engine/ops/cuda/cublas_lt.h"

#include <cublasLt.h>

#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

TEST(CublasLtTest, TheLibraryHasAllFunctionsAndAnswersThroughThem) {
  ASSERT_TRUE(CheckCublasLt().ok()) << CheckCublasLt();
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
  cublasLtMatrixLayout_t layout = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 2, 3, 2),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace atl::engine::cuda
