// The parameters of a slice of a model: what of each this rank has, and where
// in its own flat order.
//
// Pure: a function of ModelConfig and UnitSlice. Thread-compatible.
//
// The flat order of a rank is that of parameter_layout.h, each parameter cut to
// the rank's part. With ep > 1 the experts' parameters come last in each unit,
// for then they are sharded over other ranks than the rest (kExpertShardGroup
// of parallel/mesh.h, not kShardGroup); with ep = 1 nothing moves and they
// count as dense. A slice that is the whole model has the layout of the model.

#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {

// row_count runs of column_count elements, in the rank's flat order and in the
// model's: element (i, j) is at begin + i stride + j of each.
struct Rectangle {
  int64_t local_begin = 0;
  int64_t local_stride = 0;
  int64_t global_begin = 0;
  int64_t global_stride = 0;
  int64_t row_count = 1;
  int64_t column_count = 0;
};

// How the parameter of the same place in LocalLayout::layout lies in the model.
struct LocalParameter {
  int64_t global_index = 0;  // In the model's ParameterLayout::parameters.
  // Divided by tp. If not, all ranks of a tp group hold the same, and their
  // gradients are equal: a norm or a save takes it from one of them.
  bool cut_by_tp = false;
  // Of an expert, with ep > 1: ranks of an ep group hold different ones. If
  // not, all of them hold the same.
  bool is_expert = false;
  std::vector<Rectangle> rectangles;  // They cover the rank's part once.
};

// One unit's span, [dense_count elements, then expert_count].
struct LocalUnit {
  ParameterSpan span;
  int64_t dense_count = 0;
  int64_t expert_count = 0;  // 0 unless ep > 1.
};

struct LocalLayout {
  UnitSlice slice;
  // The rank's parameters: names as in the model, shapes, offsets and units as
  // the rank has them. Units are made of it (model/units.h).
  ParameterLayout layout;
  std::vector<LocalParameter> parameters;  // As layout.parameters.
  std::vector<LocalUnit> units;            // L + 2
};

// Requires ValidateSlice(config, slice).
LocalLayout MakeLocalLayout(const ModelConfig& config, const UnitSlice& slice);

}  // namespace atl::engine
