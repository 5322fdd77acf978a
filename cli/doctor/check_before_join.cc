#include "cli/doctor/check_before_join.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/doctor/check.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/machine_judge.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// Its shards are fetched while it trains; `atoll doctor` compares them.
constexpr int64_t kCacheBytes = 0;

absl::Status ToError(const Checks& checks) {
  for (const Check& check : checks.all()) {
    if (check.result == CheckResult::kWarn) {
      LOG(WARNING) << check.id << ": " << check.message;
    }
    if (check.result != CheckResult::kFailed) continue;
    return WithHint(
        MakeCheckError(absl::StrCat(check.id, ": ", check.message)),
        absl::StrCat(check.action, " `atoll doctor` checks all again."));
  }
  return absl::OkStatus();
}

absl::Status CheckMachine(const GateCall& call, const GatePeer& peer,
                          const v1::TokenEnrolment& enrol,
                          const std::string& state_directory,
                          const Lent& lent) {
  v1::GateRequest request;
  request.mutable_check()->set_token_id(enrol.token_id());
  request.mutable_check()->set_token_secret(enrol.token_secret());
  request.mutable_check()->set_run_id(enrol.run_id());
  ClockFacts clock;
  clock.asked = absl::Now();
  const absl::StatusOr<v1::GateResponse> answer = call(peer, request);
  clock.answered = absl::Now();
  // Asking again would only wait again.
  if (absl::IsUnavailable(answer.status()) ||
      absl::IsDeadlineExceeded(answer.status()) ||
      absl::IsCancelled(answer.status())) {
    return answer.status();
  }
  Checks checks;
  std::optional<RunNeeds> needs;
  if (answer.ok()) {
    clock.gate = FromProto(answer->time());
    checks.Add(JudgeClock(clock));
    const v1::RunPreview& run = answer->token_state().run();
    if (run.has_spec()) {
      if (const auto computed = ComputeRunNeeds(run.spec()); computed.ok()) {
        needs = *computed;
      }
    }
  }
  const MachineFacts machine =
      ReadMachineFacts(state_directory, state_directory);
  checks.Add(JudgeIsa(machine));
  const RunLimits limits = LimitsOf(machine, lent, /*is_enrolled=*/true);
  checks.Add(JudgeMemory(machine, needs, limits));
  checks.Add(JudgeDiskSpace(machine, needs, limits, kCacheBytes));
  return ToError(checks);
}

}  // namespace

GateCall CheckBeforeJoin(GateCall call, const std::string& state_directory,
                         const Lent& lent) {
  return
      [call = std::move(call), state_directory, lent](
          const GatePeer& peer,
          const v1::GateRequest& request) -> absl::StatusOr<v1::GateResponse> {
        if (request.has_enrol()) {
          RETURN_IF_ERROR(
              CheckMachine(call, peer, request.enrol(), state_directory, lent));
        }
        return call(peer, request);
      };
}

absl::Status CheckRunSize(const v1::RunSpec& spec, const RunLimits& limits) {
  const absl::StatusOr<RunNeeds> needs = ComputeRunNeeds(spec);
  if (!needs.ok()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckMemory(*needs, limits));
  return CheckDisk(*needs, limits);
}

}  // namespace atl::cli
