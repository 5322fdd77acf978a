#include "worker/engine/model/local_layout.h"

#include <algorithm>
#include <utility>

namespace atl::engine {
namespace {

// Returns whether ranks of an ep group hold different parts of `spec`.
bool DividedByEp(const ParameterSpec& spec, const UnitSlice& slice) {
  return spec.expert >= 0 && slice.ep_size > 1;
}

// Indices in `model` of the rank's parameters, in its order.
std::vector<int64_t> ComputeOrder(const ModelConfig& config,
                                  const ParameterLayout& model,
                                  const UnitSlice& slice) {
  const Range experts =
      ComputeRange(config.expert_count, slice.ep_rank, slice.ep_size);
  std::vector<int64_t> order;
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterSpec& spec = model.parameters[i];
    if (DividedByEp(spec, slice) &&
        (spec.expert < experts.begin || spec.expert >= experts.end)) {
      continue;
    }
    order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const ParameterSpec& left = model.parameters[a];
    const ParameterSpec& right = model.parameters[b];
    return std::pair(left.unit, DividedByEp(left, slice)) <
           std::pair(right.unit, DividedByEp(right, slice));
  });
  return order;
}

// Cuts the model's `spec` to the rank's part at `offset`, and sets
// `parameter`'s rectangles.
void CutByTp(const UnitSlice& slice, int64_t offset, ParameterSpec& spec,
             LocalParameter& parameter) {
  const int64_t global_begin = spec.offset;
  spec.offset = offset;
  const bool cut = spec.cut_dimension >= 0 && slice.tp_size > 1;
  parameter.cut_by_tp = cut;
  if (!cut) {
    parameter.rectangles = {{.local_begin = offset,
                             .local_stride = spec.element_count,
                             .global_begin = global_begin,
                             .global_stride = spec.element_count,
                             .row_count = 1,
                             .column_count = spec.element_count}};
    return;
  }
  const int64_t length = spec.shape[spec.cut_dimension];
  int64_t outer = 1, inner = 1;  // Sizes before and after it.
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    if (static_cast<int>(i) < spec.cut_dimension) outer *= spec.shape[i];
    if (static_cast<int>(i) > spec.cut_dimension) inner *= spec.shape[i];
  }
  std::vector<int64_t> parts = spec.cut_parts;
  if (parts.empty()) parts = {length};
  int64_t begin = 0, local_length = 0;
  for (int64_t part : parts) {
    const Range mine = ComputeRange(part, slice.tp_rank, slice.tp_size);
    parameter.rectangles.push_back(
        {.local_begin = offset + local_length * inner,
         .global_begin = global_begin + (begin + mine.begin) * inner,
         .global_stride = length * inner,
         .row_count = outer,
         .column_count = mine.size() * inner});
    begin += part;
    local_length += mine.size();
  }
  for (Rectangle& rectangle : parameter.rectangles) {
    rectangle.local_stride = local_length * inner;
  }
  spec.shape[spec.cut_dimension] = local_length;
  spec.cut_parts.clear();
  spec.element_count = outer * local_length * inner;
}

}  // namespace

LocalLayout MakeLocalLayout(const ModelConfig& config, const UnitSlice& slice) {
  const ParameterLayout model = MakeParameterLayout(config);
  LocalLayout local;
  local.slice = slice;
  local.units.resize(model.units.size());
  int64_t offset = 0;
  for (int64_t index : ComputeOrder(config, model, slice)) {
    ParameterSpec spec = model.parameters[index];
    LocalParameter parameter;
    CutByTp(slice, offset, spec, parameter);
    LocalUnit& unit = local.units[spec.unit];
    (DividedByEp(spec, slice) ? unit.expert_count : unit.dense_count) +=
        spec.element_count;
    offset += spec.element_count;
    local.layout.parameters.push_back(std::move(spec));
    local.parameters.push_back(std::move(parameter));
  }
  local.layout.element_count = offset;
  int64_t begin = 0;
  for (LocalUnit& unit : local.units) {
    unit.span = {begin, begin + unit.dense_count + unit.expert_count};
    begin = unit.span.end;
    local.layout.units.push_back(unit.span);
  }
  return local;
}

}  // namespace atl::engine
