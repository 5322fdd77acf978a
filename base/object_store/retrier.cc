#include "base/object_store/retrier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// How long a sleep may ignore `cancelled`.
constexpr absl::Duration kNapMax = absl::Milliseconds(100);

}  // namespace

absl::Status Retrier::Run(absl::FunctionRef<absl::Status()> attempt,
                          absl::FunctionRef<int64_t()> progress) {
  rpc::Backoff backoff(budget_.delays, ++seed_);
  absl::Time begin = waiting_.clock->Now();
  int64_t progress_begin = progress();
  int attempt_count = 0;
  while (true) {
    ++attempt_count;
    const absl::Status status = attempt();
    if (!absl::IsUnavailable(status)) return status;
    if (progress() - progress_begin >= kProgressBytes) {
      progress_begin = progress();
      attempt_count = 1;
      begin = waiting_.clock->Now();
      backoff.Reset();
    }
    const absl::Duration delay = backoff.Next(status);
    const absl::Duration spent = waiting_.clock->Now() - begin;
    if (attempt_count >= budget_.attempt_count_max ||
        spent + delay > budget_.time_max) {
      return Annotate(
          status, absl::StrCat("gave up after ", attempt_count, " attempts in ",
                               absl::ToInt64Seconds(spent), " s"));
    }
    RETURN_IF_ERROR(Sleep(waiting_, delay));
  }
}

absl::Status Sleep(const Waiting& waiting, absl::Duration delay) {
  while (delay > absl::ZeroDuration()) {
    if (waiting.cancelled && waiting.cancelled()) {
      return absl::CancelledError("cancelled while waiting");
    }
    const absl::Duration nap = std::min(delay, kNapMax);
    if (waiting.sleep) {
      waiting.sleep(nap);
    } else {
      absl::SleepFor(nap);
    }
    delay -= nap;
  }
  return absl::OkStatus();
}

}  // namespace atl
