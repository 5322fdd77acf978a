#include "coordinator/core/spec/island_requests.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

absl::Status CheckCapabilities(const v1::IslandCapabilities& capabilities) {
  std::vector<FieldViolation> violations;
  if (capabilities.devices().empty()) {
    violations.push_back({"capabilities.devices", "must name at least one"});
  }
  if (capabilities.ByteSizeLong() > 4096) {
    violations.push_back({"capabilities", "is larger than 4 KiB"});
  }
  if (capabilities.thread_count() < 0) {
    violations.push_back({"capabilities.thread_count", "must be at least 0"});
  }
  if (!std::isfinite(capabilities.tokens_per_second()) ||
      capabilities.tokens_per_second() < 0) {
    violations.push_back(
        {"capabilities.tokens_per_second", "must be finite and at least 0"});
  }
  if (violations.empty()) return absl::OkStatus();
  return InvalidFields(violations);
}

absl::Status CheckProgress(const v1::ReportProgressRequest& request) {
  std::vector<FieldViolation> violations;
  const auto counts = {
      std::make_pair("step", request.step()),
      std::make_pair("token_count", request.token_count()),
      std::make_pair("loss_step_count", request.loss_step_count()),
      std::make_pair("sent_bytes", request.sent_bytes()),
      std::make_pair("received_bytes", request.received_bytes())};
  for (const auto& [field, value] : counts) {
    if (value < 0 || value > kProgressCountMax) {
      violations.push_back({field, "must be at least 0 and at most 2^52"});
    }
  }
  const auto measures = {
      std::make_pair("tokens_per_second", request.tokens_per_second()),
      std::make_pair("loss", request.loss()),
      std::make_pair("gradient_norm", request.gradient_norm())};
  for (const auto& [field, value] : measures) {
    if (!std::isfinite(value) || value < 0) {
      violations.push_back({field, "must be finite and at least 0"});
    }
  }
  for (int i = 0; i < request.evaluations_size(); ++i) {
    const v1::Evaluation& evaluation = request.evaluations(i);
    if (!std::isfinite(evaluation.loss()) || evaluation.loss() < 0 ||
        evaluation.token_count() < 0 || evaluation.version() < 0 ||
        evaluation.commit_seq() < 0) {
      violations.push_back({absl::StrCat("evaluations[", i, "]"),
                            "its numbers must be finite and at least 0"});
    }
  }
  if (violations.empty()) return absl::OkStatus();
  return InvalidFields(violations);
}

}  // namespace atl::coordinator
