// The places of a rank's unit and its gathered spans in a buffer. Pure.
//
// A gathered span ends with padding. A single span's padding follows the unit.
// If a unit has two spans, the dense span's padding would overlap the experts.
// So the dense span is gathered after them and copied to its place.

#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

struct UnitFrame {
  int64_t size = 0;  // Elements, a multiple of kShardAlignment.
  // Where each of the unit's spans is gathered to.
  int64_t span_begin[2] = {0, 0};
  // Dense elements to copy from span_begin[0] to the unit's start; 0: none.
  int64_t copy_count = 0;

  static UnitFrame Of(const RankLayout& layout, int unit) {
    const RankUnit& rank_unit = layout.units[unit];
    const ShardSpan& first = layout.spans[rank_unit.first_span];
    UnitFrame frame;
    if (rank_unit.span_count == 1) {
      frame.size = AlignShard(first.gathered_count());
      return frame;
    }
    const ShardSpan& second = layout.spans[rank_unit.first_span + 1];
    frame.span_begin[1] = second.begin;
    frame.span_begin[0] = AlignShard(second.begin + second.gathered_count());
    frame.copy_count = first.count;
    frame.size = AlignShard(frame.span_begin[0] + first.gathered_count());
    return frame;
  }

  static int64_t SizeMax(const RankLayout& layout) {
    int64_t size = 0;
    for (size_t u = 0; u < layout.units.size(); ++u) {
      size = std::max(size, Of(layout, static_cast<int>(u)).size);
    }
    return size;
  }
};

}  // namespace atl::engine
