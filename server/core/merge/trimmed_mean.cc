// The coordinate-wise trimmed mean (arXiv 1803.01498, definition 2): the mean
// of every element without its f least and f greatest values, added in
// ascending order, so that the order of the islands does not matter.

#include <algorithm>

#include "server/core/merge/merge_rule.h"

namespace atl::server {
namespace {

class TrimmedMean final : public MergeRule {
 public:
  explicit TrimmedMean(int trim_count) : trim_count_(trim_count) {}

  absl::string_view name() const override { return "trimmed mean"; }
  bool takes_rows() const override { return true; }

  void MergeRows(const MergeKernels& kernels, int64_t n, int contribution_count,
                 float* const* x, float* g) const override {
    const int trim = std::min(trim_count_, (contribution_count - 1) / 2);
    kernels.SortRows(n, contribution_count, x);
    kernels.MeanOfRows(n, contribution_count - 2 * trim, x + trim, g);
  }

 private:
  const int trim_count_;
};

}  // namespace

std::unique_ptr<MergeRule> MakeTrimmedMean(int trim_count) {
  return std::make_unique<TrimmedMean>(trim_count);
}

}  // namespace atl::server
