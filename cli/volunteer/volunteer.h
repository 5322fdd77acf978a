// A volunteer's island: it runs while the machine's limits and its user allow
// it, and reports its state. A pause first holds the island, which stays a
// member. After `hold_max` the island leaves, so that others do not wait for
// it, and joins again later. A strict round waits for it: there it leaves after
// the run's lease_duration, as long as the round waits for a silent island.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "base/sync/mutex.h"
#include "cli/output/output.h"
#include "cli/volunteer/limits.h"
#include "cli/volunteer/local_status.h"
#include "cli/volunteer/transfer_account.h"
#include "worker/api/run_island.h"

namespace atl::cli {

struct VolunteerOptions {
  std::string run_id;
  std::string island_id;
  // The island's; with a limit on them, for the count of a day's bytes.
  std::string directory;
  Limits limits;
  absl::TimeZone zone = absl::LocalTimeZone();
  // A held island leaves a run that is not strict after so long. Infinite: it
  // cannot leave, and refuses its user's pause in a strict run.
  absl::Duration hold_max = absl::Minutes(2);
  // How often the limits are looked at.
  absl::Duration look_period = absl::Seconds(2);
  // Repeats an attempt that ended because no peer could be reached.
  bool retries = false;
  std::function<Facts(absl::Time now)> read_facts;
  std::function<std::string()> last_problem = [] { return std::string(); };
  std::function<absl::Time()> now = absl::Now;
};

class Volunteer {
 public:
  // Runs an island once, as RunIsland.
  using Attempt = std::function<absl::StatusOr<worker::IslandProgress>(
      const worker::RunIslandOptions&)>;

  // Errors as TransferAccount::Open.
  static absl::StatusOr<std::unique_ptr<Volunteer>> Create(
      VolunteerOptions options);

  // Runs the island until its run ends, its user ends it, or `island.stop`.
  // Counters of the result are those of all attempts. Errors as `attempt`, and
  // as CheckLimitsFit.
  absl::StatusOr<worker::IslandProgress> Run(worker::RunIslandOptions island,
                                             const Attempt& attempt);

  // Answers {"command": "status" | "pause" | "resume" | "finish"}; pause may
  // have "seconds". The answer is the status (local_status.h) after it.
  absl::StatusOr<Json> Handle(const Json& request);

  // Data was read.
  void CountBytes(int64_t byte_count) { moved_bytes_ += byte_count; }

  // True once its user has asked it to finish.
  bool finishing() const;

  // Looks at the limits now. Run does this, too.
  void Look();

 private:
  Volunteer(VolunteerOptions options, TransferAccount account)
      : options_(std::move(options)), account_(std::move(account)) {}

  absl::Status CheckRun(const v1::RunSpec& spec);
  // Takes in a command. INVALID_ARGUMENT, FAILED_PRECONDITION: it is refused.
  absl::Status Take(const std::string& command, const Json& request);
  bool CanLeave() const {
    return options_.hold_max < absl::InfiniteDuration();
  }
  // A held island leaves after so long.
  absl::Duration HoldMax() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return CanLeave() && is_strict_ ? lease_ : options_.hold_max;
  }
  absl::StatusOr<worker::IslandProgress> RunOnce(
      const worker::RunIslandOptions& island, const Attempt& attempt);
  // Waits until training is allowed. False: it was stopped or finished.
  bool WaitUntilAllowed(const std::stop_token& stop);
  // Waits a while after a failed attempt. False as above.
  bool WaitToRetry(const absl::Status& status, absl::Duration wait,
                   const std::stop_token& stop);
  void Watch(const std::stop_token& stop);
  void Note(const worker::IslandProgress& at);
  Decision DecideNow(const Facts& facts, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LocalStatus Status() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddTotals(worker::IslandProgress& progress) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const VolunteerOptions options_;
  worker::IslandControl control_;
  std::atomic<int64_t> moved_bytes_ = 0;  // Not in the account yet.

  Mutex look_mutex_;  // Held before mutex_.
  TransferAccount account_ ABSL_GUARDED_BY(look_mutex_);
  absl::Time save_time_ ABSL_GUARDED_BY(look_mutex_) = absl::InfinitePast();

  mutable Mutex mutex_;
  CondVar changed_;
  Decision decision_ ABSL_GUARDED_BY(mutex_);
  absl::Time hold_begin_ ABSL_GUARDED_BY(mutex_);
  // The pause of its user; InfinitePast: none.
  absl::Time paused_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool run_is_known_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_strict_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_);  // The run's.
  std::string retry_reason_ ABSL_GUARDED_BY(mutex_);  // Not empty: it waits.
  // Stops the running attempt; nostopstate: none runs.
  std::stop_source attempt_stop_ ABSL_GUARDED_BY(mutex_){std::nostopstate};
  // The attempt has read its run, so it hears of a finish by itself.
  bool in_run_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaves_to_pause_ ABSL_GUARDED_BY(mutex_) = false;
  worker::IslandProgress at_ ABSL_GUARDED_BY(mutex_);      // Without its lists.
  worker::IslandProgress totals_ ABSL_GUARDED_BY(mutex_);  // Earlier attempts.
  int64_t day_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::cli
