#include "server/core/merge/gram_sums.h"

#include "server/kernels/loop_table.h"

namespace atl::server {

GramSums::GramSums(int group_count, int contribution_count, bool diagonal_only)
    : diagonal_only_(diagonal_only),
      grams_(group_count, GramMatrix(contribution_count)),
      products_(GramMatrix::EntryCount(contribution_count)) {}

void GramSums::AddBlock(int group, int64_t n, const float* const* x) {
  const auto products = kernels::BestLoops().products;
  const int count = grams_[group].n();
  if (diagonal_only_) {
    // Off the diagonal, products stay 0.
    for (int i = 0; i < count; ++i) {
      products(n, 1, x + i, &products_[GramMatrix::EntryCount(i) + i]);
    }
  } else {
    products(n, count, x, products_.data());
  }
  grams_[group].AddProducts(products_);
}

GramSums& GramSums::operator+=(const GramSums& other) {
  for (size_t g = 0; g < grams_.size(); ++g) grams_[g] += other.grams_[g];
  return *this;
}

}  // namespace atl::server
