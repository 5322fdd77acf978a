#include "server/client/shard_driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/refusal.h"
#include "server/client/idle_watch.h"

namespace atl::server {
namespace {

// Attempts without progress after an error that should pass at once or never: a
// bad checksum, a reset stream.
constexpr int kDoubtfulErrorCountMax = 5;
// The same for a shard of another run with this run_id, about ten seconds: a
// server whose plan is behind may not yet have deleted the old run.
constexpr int kOtherRunCountMax = 14;

// How often the caller's bounds are checked, at least.
constexpr absl::Duration kTick = absl::Seconds(1);

// Not affected by changes to the machine's clock.
absl::Time Now() { return SystemClock().Now(); }

enum class Verdict { kRetry, kRetryDoubtful, kRetryOtherRun, kEnd };

Verdict Judge(const absl::Status& status) {
  if (HasReason(status, "OTHER_RUN")) return Verdict::kRetryOtherRun;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    // The server's plan is behind ours, or ours behind its.
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    // From the server: this client sets no deadline and judges no stream it
    // cancels.
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return Verdict::kRetry;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return Verdict::kRetryDoubtful;
    default:
      return Verdict::kEnd;
  }
}

absl::Status Prefixed(absl::StatusCode code, absl::string_view what,
                      const absl::Status& last) {
  if (last.ok()) return absl::Status(code, what);
  return absl::Status(code, absl::StrCat(what, "; last: ", last.ToString()));
}

// One stream of a part and its successors.
struct Lane {
  Lane(ShardPart& part, int index, DriverSignal& signal,
       const DriverOptions& options)
      : part(part),
        index(index),
        events(signal),
        backoff(options.retry, options.seed +
                                   0x9E3779B97F4A7C15u * (part.shard() + 1) +
                                   0xBF58476D1CE4E5B9u * index) {}

  ShardPart& part;
  const int index;  // Among the part's streams.
  StreamEvents events;
  rpc::Backoff backoff;
  std::unique_ptr<BulkStream> stream;  // Set while one is open.
  bool stalled = false;                // The open one was cancelled as stuck.
  bool ended = false;                  // `status` is final.
  absl::Status status;                 // The last stream's.
  absl::Time retry_time = absl::InfinitePast();
  int attempt_count = 0;
  int doubtful_count = 0;
};

class Driver {
 public:
  Driver(const std::vector<std::unique_ptr<ShardPart>>& parts,
         const DriverOptions& options, const CallBounds& bounds)
      : options_(options),
        bounds_(bounds),
        idle_watch_(bounds.idle_max, Now()) {
    for (const auto& part : parts) {
      parts_.push_back(part.get());
      for (int i = 0; i < part->stream_count(); ++i) {
        lanes_.push_back(std::make_unique<Lane>(*part, i, signal_, options));
      }
    }
  }

  TransferOutcome Run() {
    while (true) {
      CollectEnded();
      CheckBounds();
      const absl::Time now = Now();
      for (auto& lane : lanes_) StartIfDue(*lane, now);
      ShowProgress(now);
      ShowWaiting(now);
      if (AllEnded()) break;
      CancelStalled(now);
      Wait(now);
    }
    next_progress_ = absl::InfinitePast();
    ShowProgress(Now());
    return Outcome();
  }

 private:
  void ShowProgress(absl::Time now) {
    if (!bounds_.on_progress || now < next_progress_) return;
    next_progress_ = now + kTick;
    int64_t bytes = 0;
    for (const ShardPart* part : parts_) {
      bytes += part->done_bytes().value_or(0);
    }
    for (const auto& lane : lanes_) {
      if (!lane->part.done_bytes().has_value()) {
        bytes += lane->events.payload_bytes();
      }
    }
    bounds_.on_progress(bytes);
  }

  // Reports an unfinished stream, preferably one with an error.
  void ShowWaiting(absl::Time now) {
    const absl::Duration idle = idle_watch_.idle(now);
    if (!bounds_.on_waiting || ending_.has_value() || idle < kWaitingAfter ||
        now < next_waiting_) {
      return;
    }
    const Lane* waits = nullptr;
    for (const auto& lane : lanes_) {
      if (lane->ended) continue;
      if (waits == nullptr || (waits->status.ok() && !lane->status.ok())) {
        waits = lane.get();
      }
    }
    if (waits == nullptr) return;
    next_waiting_ = now + kTick;
    bounds_.on_waiting({idle, waits->part.shard(), waits->status});
  }

  void CollectEnded() {
    for (auto& lane : lanes_) {
      if (lane->stream == nullptr) continue;
      std::optional<absl::Status> done;
      {
        MutexLock lock(&signal_.mutex);
        done = lane->events.TakeDone();
      }
      if (!done.has_value()) continue;
      lane->stream.reset();
      if (lane->stalled) {
        done = absl::UnavailableError(
            "nothing moved on the stream, so it was cancelled");
        lane->stalled = false;
      }
      Settle(*lane, *std::move(done));
    }
    if (!ending_.has_value()) return;
    for (auto& lane : lanes_) {
      if (lane->stream == nullptr && !lane->ended) {
        lane->ended = true;
        lane->status = Prefixed(absl::StatusCode::kCancelled,
                                "cancelled because another stream failed",
                                lane->status);
      }
    }
  }

  void Settle(Lane& lane, absl::Status status) {
    lane.status = std::move(status);
    if (lane.part.is_done()) lane.status = absl::OkStatus();
    if (ending_.has_value() && !lane.status.ok()) return;
    if (lane.events.advanced()) {
      lane.backoff.Reset();
      lane.doubtful_count = 0;
    }
    const Verdict verdict =
        lane.status.ok() ? Verdict::kEnd : Judge(lane.status);
    const int doubtful_count_max = verdict == Verdict::kRetryOtherRun
                                       ? kOtherRunCountMax
                                       : kDoubtfulErrorCountMax;
    if (verdict == Verdict::kRetry ||
        (verdict != Verdict::kEnd &&
         ++lane.doubtful_count < doubtful_count_max)) {
      lane.retry_time = Now() + lane.backoff.Next(lane.status);
      return;
    }
    lane.ended = true;
    if (!lane.status.ok()) End(lane.status);
  }

  void StartIfDue(Lane& lane, absl::Time now) {
    if (ending_.has_value() || lane.ended || lane.stream != nullptr) return;
    if (lane.part.is_done()) {
      Settle(lane, absl::OkStatus());
      return;
    }
    if (lane.retry_time > now) return;
    ++lane.attempt_count;
    lane.events.Begin();
    auto stream = lane.part.Open(lane.index, lane.events);
    if (!stream.ok()) {
      Settle(lane, stream.status());
      return;
    }
    lane.stream = *std::move(stream);
    lane.stream->Start();
  }

  void CheckBounds() {
    if (ending_.has_value()) return;
    if (bounds_.stop.stop_requested()) {
      End(Prefixed(absl::StatusCode::kCancelled, "stopped", LastError()));
    } else if (absl::Now() >= bounds_.deadline) {
      End(Prefixed(absl::StatusCode::kDeadlineExceeded,
                   "not done by the deadline", LastError()));
    } else if (idle_watch_.IsIdle(MovedBytes(), Now())) {
      End(Prefixed(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("nothing has moved for ",
                                absl::FormatDuration(bounds_.idle_max)),
                   LastError()));
    }
  }

  int64_t MovedBytes() const {
    int64_t bytes = 0;
    for (const auto& lane : lanes_) bytes += lane->events.payload_bytes();
    return bytes;
  }

  // An error of an unfinished stream, or OK.
  absl::Status LastError() const {
    for (const auto& lane : lanes_) {
      if (!lane->ended && !lane->status.ok()) return lane->status;
    }
    return absl::OkStatus();
  }

  void End(absl::Status status) {
    if (ending_.has_value()) return;
    ending_ = std::move(status);
    for (auto& lane : lanes_) {
      if (lane->stream != nullptr) lane->stream->Cancel();
    }
  }

  bool AllEnded() {
    if (ending_.has_value()) CollectEnded();
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [](const auto& lane) { return lane->ended; });
  }

  void CancelStalled(absl::Time now) {
    for (auto& lane : lanes_) {
      if (lane->stream == nullptr || lane->stalled) continue;
      // A complete part needs no stream. One that does not end may be
      // disconnected.
      const absl::Duration patience =
          lane->part.is_done() ? kTick : options_.stall_timeout;
      if (now - lane->events.last_progress() > patience) {
        lane->stalled = true;
        lane->stream->Cancel();
      }
    }
  }

  void Wait(absl::Time now) {
    absl::Time until = now + kTick;
    if (!ending_.has_value()) {
      until = std::min(until, now + (bounds_.deadline - absl::Now()));
      for (const auto& lane : lanes_) {
        if (!lane->ended && lane->stream == nullptr) {
          until = std::min(until, lane->retry_time);
        }
      }
    }
    const bool may_stop = !ending_.has_value();
    const auto wanted = [this, may_stop] {
      if (may_stop && bounds_.stop.stop_requested()) return true;
      return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
        return lane->stream != nullptr && lane->events.HasDone();
      });
    };
    const std::stop_callback wake(bounds_.stop, [this] {
      MutexLock lock(&signal_.mutex);
      signal_.changed.SignalAll();
    });
    MutexLock lock(&signal_.mutex);
    signal_.changed.AwaitWithTimeout(&signal_.mutex, until - now, wanted);
  }

  TransferOutcome Outcome() const {
    TransferOutcome outcome;
    if (ending_.has_value()) outcome.status = *ending_;
    bool all_ok = true;
    for (const ShardPart* part : parts_) {
      ShardOutcome& shard = outcome.shards.emplace_back();
      shard.shard = part->shard();
      for (const auto& lane : lanes_) {
        if (&lane->part != part) continue;
        // Prefer the error to the CANCELLED that it caused.
        if (shard.status.ok() || absl::IsCancelled(shard.status)) {
          if (!lane->status.ok()) shard.status = lane->status;
        }
        shard.attempt_count += lane->attempt_count;
        shard.payload_bytes += lane->events.payload_bytes();
        shard.last_payload =
            std::max(shard.last_payload, lane->events.last_payload());
      }
      all_ok = all_ok && shard.status.ok();
    }
    // Everything finished despite the bound.
    if (all_ok) outcome.status = absl::OkStatus();
    return outcome;
  }

  const DriverOptions options_;
  const CallBounds bounds_;
  IdleWatch idle_watch_;
  DriverSignal signal_;
  std::vector<const ShardPart*> parts_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  absl::Time next_progress_ = absl::InfinitePast();
  absl::Time next_waiting_ = absl::InfinitePast();
  std::optional<absl::Status>
      ending_;  // Set once streams are no longer opened.
};

}  // namespace

TransferOutcome DriveShards(
    const std::vector<std::unique_ptr<ShardPart>>& parts,
    const DriverOptions& options, const CallBounds& bounds) {
  return Driver(parts, options, bounds).Run();
}

}  // namespace atl::server
