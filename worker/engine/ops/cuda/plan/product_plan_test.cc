// Runs the plans as a BLAS would and compares with the definitions.

#include "worker/engine/ops/cuda/plan/product_plan.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine::cuda {
namespace {

using Matrix = std::vector<double>;

// D = op(A) op(B), column-major.
Matrix Multiply(const ProductPlan& p, const Matrix& a, const Matrix& b) {
  Matrix d(p.m * p.n);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        sum += a.at(p.transpose_a ? l + i * p.lda : i + l * p.lda) *
               b.at(p.transpose_b ? j + l * p.ldb : l + j * p.ldb);
      }
      d.at(i + j * p.ldd) = sum;
    }
  }
  return d;
}

class ProductPlanTest : public testing::Test {
 protected:
  ProductPlanTest() : random_(std::random_device()()) {}
  Matrix Random(int64_t count) {
    std::normal_distribution<double> normal;
    Matrix matrix(count);
    for (double& value : matrix) value = normal(random_);
    return matrix;
  }
  void ExpectNear(const Matrix& actual, const Matrix& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-12) << i;
    }
  }
  std::mt19937_64 random_;
};

TEST_F(ProductPlanTest, EachIsTheTransposeOfWhatTheDefinitionGives) {
  const int64_t m = 5, n = 3, k = 7;
  const Matrix x = Random(m * k), w = Random(n * k), dy = Random(m * n);
  PlainOps<double> plain;
  Matrix y(m * n), dx(m * k), dw(n * k);
  plain.Linear(m, n, k, x.data(), w.data(), y.data());
  plain.LinearBackwardInput(m, n, k, dy.data(), w.data(), dx.data());
  plain.LinearBackwardWeight(m, n, k, dy.data(), x.data(), dw.data(), false);
  ExpectNear(Multiply(PlanProduct(ProductKind::kLinear, m, n, k), w, x), y);
  ExpectNear(Multiply(PlanProduct(ProductKind::kBackwardInput, m, n, k), w, dy),
             dx);
  ExpectNear(
      Multiply(PlanProduct(ProductKind::kBackwardWeight, m, n, k), x, dy), dw);
}

TEST(AlignmentOfTest, IsAPowerOfTwoUpTo256) {
  EXPECT_EQ(FindAlignment(reinterpret_cast<void*>(uintptr_t{4096})), 256);
  EXPECT_EQ(FindAlignment(reinterpret_cast<void*>(uintptr_t{4096 + 128})), 128);
  EXPECT_EQ(FindAlignment(reinterpret_cast<void*>(uintptr_t{4096 + 12})), 4);
  EXPECT_EQ(FindAlignment(reinterpret_cast<void*>(uintptr_t{4097})), 1);
}

}  // namespace
}  // namespace atl::engine::cuda
