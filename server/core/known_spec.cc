#include "server/core/known_spec.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/status/refusal.h"

namespace atl::server {

absl::Status CheckKnownSpec(const v1::RunSpec& spec,
                            absl::string_view program_version) {
  const uint64_t missing = RequiredFeatures(spec) & ~ProgramFeatures();
  if (missing == 0) return absl::OkStatus();
  const struct {
    absl::string_view reason;
    absl::string_view field;
    int number;
    bool (*is_known)(int);
  } fields[] = {
      {"UNKNOWN_MERGE_RULE", "outer.merge.rule", spec.outer().merge().rule(),
       &v1::MergeRuleKind_IsValid},
      {"UNKNOWN_OUTER_OPTIMIZER", "outer.optimizer", spec.outer().optimizer(),
       &v1::OuterOptimizerKind_IsValid},
      {"UNKNOWN_CODEC", "exchange.up", spec.exchange().up(),
       &v1::Codec_IsValid},
      {"UNKNOWN_CODEC", "exchange.down", spec.exchange().down(),
       &v1::Codec_IsValid},
      {"UNKNOWN_DURABILITY", "durability", spec.durability(),
       &v1::Durability_IsValid},
  };
  for (const auto& field : fields) {
    if (field.is_known(field.number)) continue;
    return Refuse(
        absl::StatusCode::kInvalidArgument, field.reason,
        absl::StrCat("spec.", field.field, " is ", field.number,
                     ", which this program (version ", program_version,
                     ") does not know; start a newer one on this directory"));
  }
  return Refuse(
      absl::StatusCode::kInvalidArgument, "UNKNOWN_FEATURES",
      absl::StrCat("the run needs ", DescribeFeatures(missing),
                   ", which this program (version ", program_version,
                   ") does not know; start a newer one on this directory"));
}

}  // namespace atl::server
