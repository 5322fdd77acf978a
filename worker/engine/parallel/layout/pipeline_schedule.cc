#include "worker/engine/parallel/layout/pipeline_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

struct Pass {
  int micro_batch;
  int chunk;
};

// Appends one rank's passes and their transfers.
class Writer {
 public:
  Writer(const PipelineShape& shape, int rank) : shape_(shape), rank_(rank) {}

  void Forward(const Pass& pass) {
    const int stage = pass.chunk * shape_.rank_count + rank_;
    if (stage > 0) Add(PipelineActionKind::kReceiveActivation, pass);
    Add(PipelineActionKind::kForward, pass);
    if (stage + 1 < shape_.stage_count()) {
      Add(PipelineActionKind::kSendActivation, pass);
    }
  }
  void Backward(const Pass& pass) {
    const int stage = pass.chunk * shape_.rank_count + rank_;
    if (stage + 1 < shape_.stage_count()) {
      Add(PipelineActionKind::kReceiveGradient, pass);
    }
    Add(PipelineActionKind::kBackward, pass);
    if (stage > 0) Add(PipelineActionKind::kSendGradient, pass);
  }
  std::vector<PipelineAction> Take() { return std::move(actions_); }

 private:
  void Add(PipelineActionKind kind, const Pass& pass) {
    actions_.push_back({kind, pass.micro_batch, pass.chunk});
  }

  const PipelineShape& shape_;
  const int rank_;
  std::vector<PipelineAction> actions_;
};

// The k-th forward of a rank: p micro-batches of chunk 0, then of chunk 1, and
// so on, then the next p micro-batches. Backwards take chunks in reverse order.
Pass PassAt(const PipelineShape& shape, int k, bool backward) {
  const int p = shape.rank_count;
  const int round = k / (p * shape.chunk_count);
  const int within = k % (p * shape.chunk_count);
  const int chunk = within / p;
  return {round * p + within % p,
          backward ? shape.chunk_count - 1 - chunk : chunk};
}

// Forwards before the first backward.
int WarmUp(const PipelineShape& shape, int rank) {
  const int p = shape.rank_count;
  const int all = shape.micro_batch_count * shape.chunk_count;
  switch (shape.kind) {
    case PipelineKind::kGpipe:
      return all;
    case PipelineKind::kOneForwardOneBackward:
      return std::min(all, p - 1 - rank);
    case PipelineKind::kInterleaved:
      break;
  }
  // With one chunk this is 1F1B. Otherwise a rank keeps twice as far ahead: a
  // chunk's backward then finds its gradient ready.
  if (shape.chunk_count == 1) return std::min(all, p - 1 - rank);
  return std::min(all, 2 * (p - 1 - rank) + (shape.chunk_count - 1) * p);
}

}  // namespace

absl::Status ValidatePipeline(const PipelineShape& shape) {
  if (shape.rank_count < 1 || shape.chunk_count < 1 ||
      shape.micro_batch_count < 1) {
    return absl::InvalidArgumentError(
        "a pipeline needs at least one rank, one chunk and one micro-batch");
  }
  if (shape.kind != PipelineKind::kInterleaved) {
    if (shape.chunk_count == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        shape.chunk_count, " chunks per rank need the interleaved schedule"));
  }
  if (shape.micro_batch_count % shape.rank_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the interleaved schedule takes ", shape.rank_count,
                     " micro-batches at a time, which does not divide ",
                     shape.micro_batch_count));
  }
  return absl::OkStatus();
}

std::vector<PipelineAction> MakePipelineSchedule(const PipelineShape& shape,
                                                 int rank) {
  Writer writer(shape, rank);
  // GPipe and 1F1B take micro-batches in order, for any m.
  const auto pass = [&](int k, bool backward) {
    return shape.chunk_count == 1 ? Pass{k, 0} : PassAt(shape, k, backward);
  };
  const int all = shape.micro_batch_count * shape.chunk_count;
  const int warm_up = WarmUp(shape, rank);
  for (int k = 0; k < warm_up; ++k) writer.Forward(pass(k, false));
  for (int k = 0; k < all; ++k) {
    if (k + warm_up < all) writer.Forward(pass(k + warm_up, false));
    writer.Backward(pass(k, true));
  }
  return writer.Take();
}

absl::StatusOr<std::vector<int>> SplitLayers(absl::Span<const double> costs,
                                             int stage_count) {
  const int n = static_cast<int>(costs.size());
  if (stage_count < 1 || n < stage_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(n, " layers cannot be cut into ", stage_count, " stages"));
  }
  std::vector<double> before(n + 1, 0);
  for (int i = 0; i < n; ++i) {
    if (!(costs[i] >= 0 && costs[i] < 1e300)) {
      return absl::InvalidArgumentError(
          "a layer's cost must be finite and >= 0");
    }
    before[i + 1] = before[i] + costs[i];
  }
  // best[k][i]: the first i layers in k runs. Minimizes the maximum, then the
  // sum of squares below that maximum.
  constexpr double kNone = 1e308;
  std::vector<std::vector<double>> best(stage_count + 1,
                                        std::vector<double>(n + 1, kNone));
  std::vector<std::vector<int>> cut(stage_count + 1, std::vector<int>(n + 1));
  const auto solve = [&](auto&& combine) {
    for (auto& row : best) std::fill(row.begin(), row.end(), kNone);
    best[0][0] = 0;
    for (int k = 1; k <= stage_count; ++k) {
      for (int i = k; i <= n; ++i) {
        for (int j = k - 1; j < i; ++j) {
          if (best[k - 1][j] == kNone) continue;
          const double cost = combine(best[k - 1][j], before[i] - before[j]);
          if (cost < best[k][i]) {
            best[k][i] = cost;
            cut[k][i] = j;
          }
        }
      }
    }
    return best[stage_count][n];
  };
  const double largest =
      solve([](double a, double b) { return std::max(a, b); });
  solve([&](double sum, double run) {
    return run > largest ? kNone : sum + run * run;
  });
  std::vector<int> boundaries(stage_count + 1, n);
  for (int k = stage_count; k > 0; --k) {
    boundaries[k - 1] = cut[k][boundaries[k]];
  }
  return boundaries;
}

}  // namespace atl::engine
