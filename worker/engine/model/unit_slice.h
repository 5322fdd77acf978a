// A rank's slice of a model: its part of every matrix (tp), of every sequence
// (cp) and of the experts (ep). parallel/layout/mesh.h assigns slices to ranks.
// Pure. Thread-safe.
//
//   tp  Attention is divided by heads, an MLP by its inner channels, the
//       vocabulary by ids. Between products the residual stream is divided by
//       rows: rank t of n has the rows [t R / n, (t + 1) R / n).
//   cp  A sequence is cut into 2 n chunks; rank c has chunk c, then chunk
//       2 n - 1 - c. Then all ranks attend to as many keys
//       (model/ring_attention.h).
//   ep  Rank e of n has the experts [e E / n, (e + 1) E / n), and reads other
//       sequences than its peers.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/model/model_config.h"

namespace atl::engine {

struct UnitSlice {
  int tp_size = 1;
  int tp_rank = 0;
  int cp_size = 1;
  int cp_rank = 0;
  int ep_size = 1;
  int ep_rank = 0;

  // This rank's rows of the residual stream. `rows` = B T is the number of
  // tokens that its tp group computes together, T the length on this rank.
  int64_t stream_rows(int64_t rows) const { return rows / tp_size; }
};

// Rank `rank`'s part of `size` items, divided as evenly as possible.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
inline Range ComputeRange(int64_t size, int rank, int rank_count) {
  return {size * rank / rank_count, size * (rank + 1) / rank_count};
}

inline Range FindVocabulary(const ModelConfig& config, const UnitSlice& slice) {
  return ComputeRange(config.vocab_size, slice.tp_rank, slice.tp_size);
}

// INVALID_ARGUMENT: heads, key/value heads or inner channels do not divide by
// tp; the vocabulary is smaller than tp; experts do not divide by ep; ep
// without experts; a rank is outside its size.
absl::Status ValidateSlice(const ModelConfig& config, const UnitSlice& slice);

// This rank's positions of a whole sequence of `sequence_length` tokens, in the
// rank's order: one run, or two of equal length if cp > 1.
std::vector<Range> SequenceRuns(const UnitSlice& slice,
                                int64_t sequence_length);

// This rank's tokens [batch, sequence_length / cp] of `tokens` [batch,
// sequence_length]: the inputs or targets of its units.
std::vector<int32_t> CutSequences(const UnitSlice& slice, int64_t batch,
                                  int64_t sequence_length,
                                  const int32_t* tokens);

}  // namespace atl::engine
