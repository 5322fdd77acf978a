// The coordinate-wise median (arXiv 1803.01498, definition 1): the middle value
// of every element, or the mean of the two middle ones.

#include "server/core/merge/merge_rule.h"

namespace atl::server {
namespace {

class Median final : public MergeRule {
 public:
  absl::string_view name() const override { return "median"; }
  bool takes_rows() const override { return true; }

  void MergeRows(const MergeKernels& kernels, int64_t n, int contribution_count,
                 float* const* x, float* g) const override {
    const int middle = (contribution_count - 1) / 2;
    kernels.SortRows(n, contribution_count, x);
    kernels.MeanOfRows(n, contribution_count - 2 * middle, x + middle, g);
  }
};

}  // namespace

std::unique_ptr<MergeRule> MakeMedian() { return std::make_unique<Median>(); }

}  // namespace atl::server
