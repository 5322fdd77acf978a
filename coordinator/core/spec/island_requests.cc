#include "coordinator/core/spec/island_requests.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/layout/trainer_metrics.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

namespace {

// A SHA-256 in hex, or empty.
bool IsDigest(const std::string& text) {
  return text.empty() || IsLowerHex(text, 64);
}

constexpr char kNoDigest[] = "must be empty or 64 digits of lower-case hex";

}  // namespace

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
  if (!IsDigest(capabilities.frozen_digest())) {
    violations.push_back({"capabilities.frozen_digest", kNoDigest});
  }
  if (violations.empty()) return absl::OkStatus();
  return InvalidFields(violations);
}

namespace {

constexpr int64_t kTimestampSecondsMax = 253'402'300'799;  // End of 9999.

bool IsNanos(int32_t nanos) { return nanos >= 0 && nanos < 1'000'000'000; }

// The fault in the phases of one synchronization; empty: none.
std::string FindPhaseError(const v1::SyncPhases& sync) {
  if (sync.seq() < 1) return "its seq must be at least 1";
  std::set<v1::Phase> seen;
  for (const v1::PhaseTime& phase : sync.phases()) {
    if (!v1::Phase_IsValid(phase.phase()) ||
        phase.phase() == v1::PHASE_UNSPECIFIED ||
        phase.phase() == v1::PHASE_MERGE) {
      return absl::StrCat("phase ", static_cast<int>(phase.phase()),
                          " is not one that islands report");
    }
    const std::string name = v1::Phase_Name(phase.phase());
    if (!seen.insert(phase.phase()).second) {
      return absl::StrCat(name, " is there twice");
    }
    if (phase.start_time().seconds() < 0 ||
        phase.start_time().seconds() > kTimestampSecondsMax ||
        !IsNanos(phase.start_time().nanos())) {
      return absl::StrCat("the start of ", name,
                          " must be between 1970 and 9999");
    }
    if (phase.duration().seconds() < 0 ||
        phase.duration().seconds() >= absl::ToInt64Seconds(kPhaseMax) ||
        !IsNanos(phase.duration().nanos())) {
      return absl::StrCat("the duration of ", name,
                          " must be at least 0 and less than 366 days");
    }
  }
  return "";
}

void CheckPhases(const v1::ReportProgressRequest& request,
                 std::vector<FieldViolation>& violations) {
  if (request.sync_phases_size() > kSyncPhasesMax) {
    violations.push_back(
        {"sync_phases",
         absl::StrCat("has ", request.sync_phases_size(),
                      " synchronizations, must have at most ",
                      kSyncPhasesMax)});
    return;
  }
  for (int i = 0; i < request.sync_phases_size(); ++i) {
    const std::string error = FindPhaseError(request.sync_phases(i));
    if (!error.empty()) {
      violations.push_back({absl::StrCat("sync_phases[", i, "]"), error});
    }
  }
}

void CheckUnpushed(const v1::ReportProgressRequest& request,
                   std::vector<FieldViolation>& violations) {
  if (request.unpushed_size() > kUnpushedMax) {
    violations.push_back(
        {"unpushed", absl::StrCat("has ", request.unpushed_size(),
                                  " entries, must have at most ",
                                  kUnpushedMax)});
    return;
  }
  for (int i = 0; i < request.unpushed_size(); ++i) {
    const v1::UnpushedWork& work = request.unpushed(i);
    const int64_t numbers[] = {
        work.fragment(),            work.version(),
        work.step_count(),          work.token_count(),
        work.run_epoch(),           work.seq(),
        work.island_epoch(),        work.number(),
        work.restored_step_count(), work.restored_token_count(),
        work.restored_island_epoch()};
    for (const int64_t number : numbers) {
      if (number >= 0 && number <= kProgressCountMax) continue;
      violations.push_back(
          {absl::StrCat("unpushed[", i, "]"),
           "its numbers must be at least 0 and at most 2^52"});
      break;
    }
  }
}

void CheckMetrics(const v1::ReportProgressRequest& request,
                  std::vector<FieldViolation>& violations) {
  if (request.metrics_size() > static_cast<int>(kTrainerMetricsMax)) {
    violations.push_back(
        {"metrics",
         absl::StrCat("has ", request.metrics_size(),
                      " entries, must have at most ", kTrainerMetricsMax)});
    return;
  }
  for (const auto& [name, value] : request.metrics()) {
    if (IsTrainerMetricName(name) && std::isfinite(value)) continue;
    violations.push_back(
        {"metrics",
         absl::StrCat("\"", absl::CHexEscape(name.substr(0, 80)),
                      "\" must have a name of 1 to 64 letters, digits and "
                      "_ . / -, and a finite value")});
  }
}

std::vector<FieldViolation> FindFaults(
    const v1::ReportProgressRequest& request) {
  std::vector<FieldViolation> violations;
  const auto counts = {
      std::make_pair("step", request.step()),
      std::make_pair("token_count", request.token_count()),
      std::make_pair("loss_step_count", request.loss_step_count()),
      std::make_pair("sent_bytes", request.sent_bytes()),
      std::make_pair("received_bytes", request.received_bytes()),
      std::make_pair("metrics_token_count", request.metrics_token_count())};
  for (const auto& [field, value] : counts) {
    if (value < 0 || value > kProgressCountMax) {
      violations.push_back({field, "must be at least 0 and at most 2^52"});
    }
  }
  const auto measures = {
      std::make_pair("tokens_per_second", request.tokens_per_second()),
      std::make_pair("loss", request.loss()),
      std::make_pair("gradient_norm", request.gradient_norm()),
      std::make_pair("trainer_silence_seconds",
                     request.trainer_silence_seconds())};
  for (const auto& [field, value] : measures) {
    if (!std::isfinite(value) || value < 0) {
      violations.push_back({field, "must be finite and at least 0"});
    }
  }
  for (int i = 0; i < request.evaluations_size(); ++i) {
    const v1::Evaluation& evaluation = request.evaluations(i);
    if (!evaluation.failure().empty()) {
      if (!std::isnan(evaluation.loss())) {
        violations.push_back({absl::StrCat("evaluations[", i, "].loss"),
                              "must be NaN if there is a failure"});
      }
    } else if (!std::isfinite(evaluation.loss()) || evaluation.loss() < 0) {
      violations.push_back({absl::StrCat("evaluations[", i, "].loss"),
                            "must be finite and at least 0; report a loss that "
                            "is not finite as a failure"});
    }
    if (evaluation.token_count() < 0 || evaluation.version() < 0 ||
        evaluation.commit_seq() < 0) {
      violations.push_back({absl::StrCat("evaluations[", i, "]"),
                            "its counts must be at least 0"});
    }
  }
  if (!IsDigest(request.index_digest())) {
    violations.push_back({"index_digest", kNoDigest});
  }
  CheckPhases(request, violations);
  CheckMetrics(request, violations);
  CheckUnpushed(request, violations);
  return violations;
}

}  // namespace

absl::Status CheckProgress(const v1::ReportProgressRequest& request) {
  const std::vector<FieldViolation> violations = FindFaults(request);
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

absl::Status CheckHeartbeat(const v1::HeartbeatRequest& request) {
  std::vector<FieldViolation> violations;
  if (request.acknowledged_seq() < 0) {
    violations.push_back({"acknowledged_seq", "must be at least 0"});
  }
  if (request.has_progress()) {
    for (FieldViolation& violation : FindFaults(request.progress())) {
      violation.field = absl::StrCat("progress.", violation.field);
      violations.push_back(std::move(violation));
    }
  }
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

absl::Status CheckLeave(const v1::LeaveRequest& request) {
  std::vector<FieldViolation> violations;
  if (request.step() < 0 || request.step() > kProgressCountMax) {
    violations.push_back({"step", "must be at least 0 and at most 2^52"});
  }
  if (!std::isfinite(request.loss())) {
    violations.push_back({"loss", "must be finite, or not set"});
  }
  if (violations.empty()) return absl::OkStatus();
  return InvalidFields(violations);
}

}  // namespace atl::coordinator
