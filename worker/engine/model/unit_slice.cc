#include "worker/engine/model/unit_slice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

absl::Status ValidateRank(absl::string_view name, int rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no rank ", rank, " of ", name, "=", size));
}

absl::Status ValidateDivides(absl::string_view what, int64_t count,
                             absl::string_view name, int64_t by) {
  if (count % by == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " (", count, ") do not divide by ", name, "=", by));
}

}  // namespace

absl::Status ValidateSlice(const ModelConfig& config, const UnitSlice& slice) {
  RETURN_IF_ERROR(ValidateRank("tp", slice.tp_rank, slice.tp_size));
  RETURN_IF_ERROR(ValidateRank("cp", slice.cp_rank, slice.cp_size));
  RETURN_IF_ERROR(ValidateRank("ep", slice.ep_rank, slice.ep_size));
  const int tp = slice.tp_size, ep = slice.ep_size;
  RETURN_IF_ERROR(ValidateDivides("heads", config.head_count, "tp", tp));
  RETURN_IF_ERROR(
      ValidateDivides("key/value heads", config.kv_head_count, "tp", tp));
  RETURN_IF_ERROR(ValidateDivides("inner channels of the MLP",
                                  config.intermediate_size, "tp", tp));
  if (config.vocab_size < tp) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size ", config.vocab_size,
                     " is smaller than tp=", tp, ": use a smaller tp"));
  }
  if (ep == 1) return absl::OkStatus();
  if (!config.is_mixture()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ep=", ep, ", but the model has no experts"));
  }
  return ValidateDivides("experts", config.expert_count, "ep", ep);
}

std::vector<Range> SequenceRuns(const UnitSlice& slice,
                                int64_t sequence_length) {
  if (slice.cp_size == 1) return {{0, sequence_length}};
  const int chunks = 2 * slice.cp_size;
  return {ComputeRange(sequence_length, slice.cp_rank, chunks),
          ComputeRange(sequence_length, chunks - 1 - slice.cp_rank, chunks)};
}

std::vector<int32_t> CutSequences(const UnitSlice& slice, int64_t batch,
                                  int64_t sequence_length,
                                  const int32_t* tokens) {
  const std::vector<Range> runs = SequenceRuns(slice, sequence_length);
  std::vector<int32_t> out;
  out.reserve(batch * sequence_length / slice.cp_size);
  for (int64_t b = 0; b < batch; ++b) {
    const int32_t* sequence = tokens + b * sequence_length;
    for (const Range& run : runs) {
      out.insert(out.end(), sequence + run.begin, sequence + run.end);
    }
  }
  return out;
}

}  // namespace atl::engine
