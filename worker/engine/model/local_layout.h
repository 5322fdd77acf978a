// The parameters of a slice of a model: which part of each this rank has, and
// where it is in the rank's flat order. Pure. Thread-compatible.
//
// A rank's flat order is that of parameter_layout.h, with each parameter cut to
// the rank's part. With ep > 1 the experts' parameters come last in each unit,
// because they are sharded over other ranks than the rest (kExpertShardGroup of
// parallel/layout/mesh.h, not kShardGroup). With ep = 1 they count as dense.

#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {

// row_count runs of column_count elements each, in the rank's and in the
// model's flat order. In each, element (i, j) is at begin + i stride + j.
struct Rectangle {
  int64_t local_begin = 0;
  int64_t local_stride = 0;
  int64_t global_begin = 0;
  int64_t global_stride = 0;
  int64_t row_count = 1;
  int64_t column_count = 0;
};

// Where the parameter of the same index in LocalLayout::layout is in the model.
struct LocalParameter {
  // Divided by tp. If false, all ranks of a tp group hold the same values and
  // equal gradients: a norm or a save takes them from one rank.
  bool cut_by_tp = false;
  std::vector<Rectangle> rectangles;  // Cover the rank's part once.
};

// One unit's span: dense_count elements, then expert_count.
struct LocalUnit {
  ParameterSpan span;
  int64_t dense_count = 0;
  int64_t expert_count = 0;  // 0 unless ep > 1.
};

struct LocalLayout {
  UnitSlice slice;
  // The model's names; this rank's shapes, offsets and units. Units use it.
  ParameterLayout layout;
  std::vector<LocalParameter> parameters;  // Parallel to layout.parameters.
  std::vector<LocalUnit> units;            // L + 2
};

// Requires that ValidateSlice(config, slice) is OK.
LocalLayout MakeLocalLayout(const ModelConfig& config, const UnitSlice& slice);

}  // namespace atl::engine
