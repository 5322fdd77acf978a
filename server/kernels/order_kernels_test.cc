#include "server/kernels/order_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/merge_kernels.h"

namespace atl::kernels {
namespace {

using Matrix = std::vector<std::vector<float>>;

std::vector<std::pair<std::string, const LoopTable*>> Tables() {
  std::vector<std::pair<std::string, const LoopTable*>> tables = {
      {"avx2", &Avx2Loops()}};
  if (HasAvx512()) tables.emplace_back("avx512", &Avx512Loops());
  return tables;
}

std::vector<float*> Pointers(Matrix& matrix) {
  std::vector<float*> rows;
  for (auto& row : matrix) rows.push_back(row.data());
  return rows;
}

void ExpectSameBits(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(std::memcmp(a[r].data(), b[r].data(), a[r].size() * 4), 0)
        << "row " << r;
  }
}

class OrderKernelTest : public testing::Test {
 protected:
  OrderKernelTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
    trace_ = "seed " + std::to_string(seed_);
  }

  // Numbers of all sizes, with ties and zeros of both signs.
  Matrix Values(int row_count, int n) {
    std::normal_distribution<float> normal;
    Matrix matrix(row_count, std::vector<float>(n));
    for (auto& row : matrix) {
      for (float& value : row) {
        value = normal(random_);
        if (random_() % 4 == 0) value = std::round(value);
        if (random_() % 8 == 0) value = random_() % 2 ? 0.0f : -0.0f;
        if (random_() % 16 == 0) value *= 1e30f;
      }
    }
    return matrix;
  }

  const unsigned seed_;
  std::string trace_;
  std::mt19937 random_;
};

TEST_F(OrderKernelTest, EveryNumberOfRowsIsSorted) {
  SCOPED_TRACE(trace_);
  for (int row_count = 1; row_count <= 40; ++row_count) {
    const int n = static_cast<int>(random_() % 600);
    Matrix sorted = Values(row_count, n);
    const Matrix start = sorted;
    SortRowsPlain(n, row_count, Pointers(sorted).data());
    for (int r = 1; r < row_count; ++r) {
      for (int i = 0; i < n; ++i) ASSERT_LE(sorted[r - 1][i], sorted[r][i]);
    }
    for (const auto& [name, table] : Tables()) {
      SCOPED_TRACE(name + " rows " + std::to_string(row_count));
      Matrix got = start;
      table->sort_rows(n, row_count, Pointers(got).data());
      ExpectSameBits(got, sorted);
    }
  }
}

TEST_F(OrderKernelTest, TheOrderOfTheRowsCannotBeSeen) {
  SCOPED_TRACE(trace_);
  Matrix matrix = Values(9, 500);
  Matrix shuffled = matrix;
  std::shuffle(shuffled.begin(), shuffled.end(), random_);
  BestLoops().sort_rows(500, 9, Pointers(matrix).data());
  BestLoops().sort_rows(500, 9, Pointers(shuffled).data());
  ExpectSameBits(matrix, shuffled);
}

TEST_F(OrderKernelTest, MeansHaveTheBitsOfThePlainOnes) {
  SCOPED_TRACE(trace_);
  for (int row_count = 1; row_count <= 9; ++row_count) {
    const int n = static_cast<int>(random_() % 300);
    Matrix matrix = Values(row_count, n);
    const std::vector<float*> rows = Pointers(matrix);
    Matrix expected(1, std::vector<float>(n));
    MeanOfRowsPlain<float>(n, row_count, rows.data(), expected[0].data());
    for (const auto& [name, table] : Tables()) {
      Matrix got(1, std::vector<float>(n, 1e30f));
      table->mean_of_rows(n, row_count, rows.data(), got[0].data());
      ExpectSameBits(got, expected);
    }
  }
}

TEST_F(OrderKernelTest, ProductsHaveTheBitsOfThePlainOnes) {
  SCOPED_TRACE(trace_);
  for (int row_count = 1; row_count <= 12; ++row_count) {
    const int n = static_cast<int>(random_() % 4097);
    Matrix matrix = Values(row_count, n);
    const std::vector<float*> rows = Pointers(matrix);
    const size_t count = row_count * (row_count + 1) / 2;
    std::vector<double> expected(count);
    ProductsPlain(n, row_count, rows.data(), expected.data());
    for (const auto& [name, table] : Tables()) {
      SCOPED_TRACE(name);
      std::vector<double> got(count, -1);
      table->products(n, row_count, rows.data(), got.data());
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), count * 8), 0);
    }
    for (int r = 0; r < row_count; ++r) {
      // The norm that the push computed.
      EXPECT_EQ(expected[r * (r + 1) / 2 + r],
                BestLoops().check_and_norm(n, rows[r]).sum_of_squares);
    }
  }
}

TEST_F(OrderKernelTest, ProductsAreThoseOfFloat64) {
  SCOPED_TRACE(trace_);
  std::normal_distribution<float> normal;
  Matrix matrix(2, std::vector<float>(4096));
  long double expected = 0, size = 0;
  for (int i = 0; i < 4096; ++i) {
    matrix[0][i] = normal(random_);
    matrix[1][i] = normal(random_);
    const long double product = static_cast<long double>(matrix[0][i]) *
                                static_cast<long double>(matrix[1][i]);
    expected += product;
    size += std::abs(product);
  }
  double products[3];
  const std::vector<float*> rows = Pointers(matrix);
  BestLoops().products(4096, 2, rows.data(), products);
  EXPECT_NEAR(products[1], static_cast<double>(expected),
              1e-14 * static_cast<double>(size));
}

}  // namespace
}  // namespace atl::kernels
