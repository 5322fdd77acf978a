#include "server/core/merge/gram_sums.h"

namespace atl::server {

GramSums::GramSums(int group_count, int contribution_count)
    : grams_(group_count, GramMatrix(contribution_count)),
      products_(GramMatrix::EntryCount(contribution_count)) {}

void GramSums::AddBlock(const MergeKernels& kernels, int group, int64_t n,
                        const float* const* x) {
  kernels.Products(n, grams_[group].n(), x, products_.data());
  grams_[group].AddProducts(products_);
}

GramSums& GramSums::operator+=(const GramSums& other) {
  for (size_t g = 0; g < grams_.size(); ++g) grams_[g] += other.grams_[g];
  return *this;
}

}  // namespace atl::server
