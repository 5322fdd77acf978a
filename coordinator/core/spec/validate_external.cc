#include "coordinator/core/spec/validate_spec.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/layout/external_model.h"
#include "base/layout/weight_unit.h"
#include "coordinator/core/spec/checker.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace atl::coordinator {
namespace {

// Refuses every field of `message` but those in `read`.
void OnlyHas(Checker& check, const google::protobuf::Message& message,
             absl::string_view table,
             std::initializer_list<absl::string_view> read,
             absl::string_view why) {
  std::vector<const google::protobuf::FieldDescriptor*> given;
  message.GetReflection()->ListFields(message, &given);
  for (const google::protobuf::FieldDescriptor* field : given) {
    const bool is_read =
        std::find(read.begin(), read.end(), field->name()) != read.end();
    check.Require(is_read, absl::StrCat(table, ".", field->name()),
                  absl::StrCat(why, ": leave it out"));
  }
}

}  // namespace

void CheckExternal(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations) {
  Checker check(violations);
  const bool is_data_external =
      spec.data().format() == v1::DATA_FORMAT_EXTERNAL;
  if (!IsExternal(spec.model())) {
    check.Require(!is_data_external, "data.format",
                  "is EXTERNAL, but islands train this model themselves and "
                  "must read the data: choose BYTES, LLMC or UINT16, or "
                  "model.architecture \"external\"");
    check.Require(
        WeightUnitOf(spec.weight_unit()) == v1::WEIGHT_UNIT_TOKENS,
        "weight_unit",
        "must be TOKENS: Atoll's own engine counts tokens, and only the "
        "trainer of an external model counts another unit");
    return;
  }
  check.Require(v1::WeightUnit_IsValid(spec.weight_unit()), "weight_unit",
                "must be TOKENS, SAMPLES or STEPS");
  OnlyHas(check, spec.model(), "model", {"architecture", "sequence_length"},
          "only the trainer knows an external model");
  check.InRange(spec.model().sequence_length(), 1, 1 << 24,
                "model.sequence_length");
  OnlyHas(check, spec.inner(), "inner",
          {"batch_size", "warmup_step_count", "save_every_syncs"},
          "the trainer of an external model has its own optimizer");
  check.InRange(spec.inner().batch_size(), 1, 1 << 20, "inner.batch_size");
  check.InRange(spec.inner().warmup_step_count(), 0, int64_t{1} << 31,
                "inner.warmup_step_count");
  check.Require(spec.outer().weighting() != v1::WEIGHTING_SAMPLES,
                "outer.weighting",
                "must not be SAMPLES: choose TOKENS, and weight_unit SAMPLES");
  check.Require(is_data_external, "data.format",
                "must be EXTERNAL: an external model has a trainer of its own, "
                "which also reads the data");
  if (!is_data_external) return;
  OnlyHas(check, spec.data(), "data", {"format", "data_shard_count"},
          "Atoll reads none of the external data");
  check.InRange(spec.evaluation().batch_count(), 0, 1 << 24,
                "evaluation.batch_count");
}

}  // namespace atl::coordinator
