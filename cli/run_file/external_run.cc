#include "cli/run_file/external_run.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/layout/external_model.h"

namespace atl::cli {
namespace {

// The most tokens that a sample may count, where the file does not say it: no
// limit in practice.
constexpr int32_t kSequenceLength = 1 << 20;

constexpr absl::string_view kRead[] = {
    "model.architecture", "model.sequence_length",   "model.tensors",
    "inner.batch_size",   "inner.warmup_step_count", "inner.save_every_syncs",
    "data.format",        "data.data_shard_count",
};

}  // namespace

std::string ExternalKeyFault(absl::string_view key) {
  if (std::find(std::begin(kRead), std::end(kRead), key) != std::end(kRead)) {
    return "";
  }
  std::string why;
  if (absl::StartsWith(key, "model.")) {
    why = "only the trainer knows an external model";
  } else if (absl::StartsWith(key, "inner.")) {
    why = "the trainer of an external model has its own optimizer";
  } else if (absl::StartsWith(key, "data.")) {
    why = "the trainer of an external model reads the data";
  } else if (key == "layout.layers_a_fragment" ||
             key == "layout.fragment_pattern") {
    return absl::StrCat("'", key,
                        "' is about layers, and only the trainer knows those "
                        "of an external model: give layout.fragment_count");
  } else {
    return "";
  }
  return absl::StrCat("'", key, "' is not read: ", why, "; leave it out");
}

void MakeExternal(const std::set<std::string>& own, v1::RunSpec* spec) {
  v1::ModelSpec model;
  model.set_architecture(kExternalArchitecture);
  model.set_sequence_length(own.count("model.sequence_length") != 0
                                ? spec->model().sequence_length()
                                : kSequenceLength);
  *spec->mutable_model() = model;
  v1::InnerSpec inner;
  inner.set_batch_size(
      own.count("inner.batch_size") != 0 ? spec->inner().batch_size() : 1);
  inner.set_warmup_step_count(spec->inner().warmup_step_count());
  inner.set_save_every_syncs(spec->inner().save_every_syncs());
  *spec->mutable_inner() = inner;
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_EXTERNAL);
  data.set_data_shard_count(spec->data().data_shard_count());
  *spec->mutable_data() = data;
  if (spec->outer().weighting() == v1::WEIGHTING_SAMPLES &&
      own.count("outer.weighting") == 0) {
    spec->mutable_outer()->set_weighting(v1::WEIGHTING_TOKENS);
  }
}

}  // namespace atl::cli
