// This machine's library, which needs no device for these calls.

#include "worker/collective/nccl/nccl_library.h"

#include <nccl.h>

#include "gtest/gtest.h"

namespace atl::collective {
namespace {

TEST(NcclLibraryTest, TheLibraryHasAllFunctionsAndAnswersThroughThem) {
  ASSERT_TRUE(CheckNccl().ok()) << CheckNccl();
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
}

}  // namespace
}  // namespace atl::collective
