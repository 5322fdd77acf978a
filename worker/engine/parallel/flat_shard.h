// Who owns which elements of a model that lies in flat shards (ZeRO, FSDP), and
// the buckets in which gradients of whole copies are reduced (DDP).
//
// Pure. Thread-safe once made.
//
// A model is a flat buffer of parameters, cut into units: consecutive elements
// that are gathered and freed together, as a block's. Within the unit u
//
//   c_u     elements
//   g       ranks of the group
//   s_u     elements of a shard: c_u / g, rounded up to kShardAlignment
//   shard r elements [r s_u, (r + 1) s_u) of the unit, zeros past c_u
//
// and a rank keeps its shards of all units one after the other. So a gathered
// unit is one all-gather of equal parts, and its elements lie as in the model.

#ifndef WORKER_ENGINE_PARALLEL_FLAT_SHARD_H_
#define WORKER_ENGINE_PARALLEL_FLAT_SHARD_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace atl::engine {

// Elements [begin, end).
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

class FlatShards {
 public:
  // 64 bytes of f32: no two ranks write one cache line.
  static constexpr int64_t kShardAlignment = 16;

  struct Unit {
    int64_t begin = 0;          // In the model's flat buffer.
    int64_t element_count = 0;  // c_u
    int64_t shard_count = 0;    // s_u
    int64_t shard_begin = 0;    // In what a rank keeps.
  };

  // Of units with so many elements each, one after the other.
  //
  // INVALID_ARGUMENT: no ranks, no units, or a unit without elements.
  static absl::StatusOr<FlatShards> Create(
      const std::vector<int64_t>& unit_counts, int group_size);

  int group_size() const { return group_size_; }
  const std::vector<Unit>& units() const { return units_; }
  int64_t element_count() const { return element_count_; }
  // What a rank keeps, with padding: the sum of s_u.
  int64_t kept_count() const { return kept_count_; }
  // The longest gathered unit, g s_u, and the longest shard.
  int64_t gathered_count_max() const { return group_size_ * shard_count_max_; }
  int64_t shard_count_max() const { return shard_count_max_; }

  // Elements of the model in shard `rank` of `unit`; may be empty.
  ElementRange OwnedOf(int unit, int rank) const;

  // All that `rank` owns, in order, neighbours joined: what it pushes.
  std::vector<ElementRange> Owned(int rank) const;

  // Who owns element `element` of the model, and where that rank keeps it.
  struct Place {
    int rank = 0;
    int64_t offset = 0;  // In what the rank keeps.
  };
  Place PlaceOf(int64_t element) const;

  // Copies what `rank` owns out of `model` [element_count()] to what it keeps
  // [kept_count()], zeros where it pads; and back.
  void Keep(int rank, absl::Span<const float> model,
            absl::Span<float> kept) const;
  void Restore(int rank, absl::Span<const float> kept,
               absl::Span<float> model) const;

 private:
  int group_size_ = 1;
  int64_t element_count_ = 0;
  int64_t kept_count_ = 0;
  int64_t shard_count_max_ = 0;
  std::vector<Unit> units_;
};

// Parameters whose gradients are reduced with one call, once all are there.
struct GradientBucket {
  ElementRange elements;    // Of the model.
  int first_parameter = 0;  // The ones in it, in the model's order.
  int parameter_count = 0;
};

// Cuts the parameters of a model, which have so many elements each, into
// buckets of at most `bucket_count_max` elements, or of one parameter. The
// first bucket is the first to be whole in a backward pass: the end of the
// model.
//
// INVALID_ARGUMENT: a parameter or a bucket without elements.
absl::StatusOr<std::vector<GradientBucket>> MakeGradientBuckets(
    const std::vector<int64_t>& parameter_counts, int64_t bucket_count_max);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_PARALLEL_FLAT_SHARD_H_
