#include "cli/commands/complete_spec.h"

#include <string>

#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "worker/api/model_files.h"
#include "worker/api/model_spec.h"

namespace atl::cli {

absl::Status CompleteSpec(RunFile* run) {
  v1::RunSpec& spec = run->spec;
  absl::StatusOr<v1::Layout> layout =
      worker::BuildLayout(spec.model(), spec.layout().fragment_count());
  if (!layout.ok()) {
    return WithReason(WithContext(layout.status(), "[model]"), "MODEL_INVALID");
  }
  *spec.mutable_layout() = *std::move(layout);
  if (run->has_fingerprint) return absl::OkStatus();
  absl::StatusOr<std::string> fingerprint =
      worker::DataFingerprint(spec.data());
  if (!fingerprint.ok()) {
    return WithReason(WithContext(fingerprint.status(), "[data]"),
                      "DATA_UNUSABLE");
  }
  spec.mutable_data()->set_fingerprint(*fingerprint);
  const absl::Status enough = worker::CheckData(spec).status();
  if (!enough.ok()) {
    return WithReason(WithContext(enough, "[data]"), "DATA_UNUSABLE");
  }
  return absl::OkStatus();
}

}  // namespace atl::cli
