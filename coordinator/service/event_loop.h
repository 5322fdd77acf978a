// The one thread that the coordinator's core runs on.
//
// The thread takes the queued events, lets the core decide them one by one, and
// makes their records durable in one synced batch, or in several if their
// answers would take much memory. Only then does it answer the events and send
// plans. So nothing is seen that could still be lost, and a slow disk makes
// larger batches, not a longer queue. Core timers wake it too.
//
// While the thread waits for the disk, or the process is stopped, heartbeats
// wait too. So the core adds such a stall to every lease, window and deadline.
//
// If a batch cannot be made durable, its decisions are never sent, and the core
// is rebuilt from the store. Until that works every event is refused with
// UNAVAILABLE, DISK_FAILS, or RESOURCE_EXHAUSTED, DISK_FULL. Streams stay open
// and get the plans of the rebuilt core.
//
// Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/metrics/run_metrics.h"
#include "coordinator/service/call_queue.h"
#include "coordinator/service/plan_publisher.h"
#include "coordinator/service/read_pool.h"
#include "coordinator/service/run_event_writer.h"
#include "coordinator/service/stream_room.h"
#include "coordinator/service/waiting_calls.h"
#include "coordinator/store/store.h"
#include "prometheus/histogram.h"

namespace atl::coordinator {

class EventLoop {
 public:
  struct Spec {
    Store* store = nullptr;        // Must outlive the loop.
    const Clock* clock = nullptr;  // Must outlive the loop.
    CoordinatorOptions coordinator;
    // Bounds of the queue; calls above them are refused.
    WaitingCalls::Bounds waiting;
    PlanPublisher::Bounds plan_streams;
    StreamBound event_streams = {1024, 256};
    // Event streams of one reader. A newer stream ends the oldest.
    size_t event_streams_a_reader_max = 4;
    // Time between two attempts to recover from a failed append.
    absl::Duration recovery_period = absl::Seconds(1);
    // Called when it changes whether the coordinator accepts changes, with the
    // refusal that callers get: the store takes no records, or the log is an
    // older copy or damaged. OK at first. On the thread, or within Start.
    std::function<void(const absl::Status& refusal)> on_refusal;
    // Called on the thread, after a durable batch, if checkpoints or the cluster
    // object may be due in the mirror. Must not block; empty: nothing waits for
    // it.
    std::function<void()> on_mirror_due;
    // Counts the durable batches, and asks the loop for the present values;
    // null: nothing does. Must outlive the loop.
    RunMetrics* metrics = nullptr;
    // Gets the seconds of each synced append; null: nothing does. Must outlive
    // the loop.
    prometheus::Histogram* fsync_seconds = nullptr;
  };

  // Replays the store, makes a new epoch durable, starts the thread. On a store
  // with damage nothing is written, and the coordinator only reads.
  //
  // DATA_LOSS: a log is inconsistent. Also the errors of the store.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Start(const Spec& spec);

  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Refuses further events with UNAVAILABLE, STOPPING. Decides the queued ones
  // and makes them durable, ends the streams with the same error,
  // and joins the thread. Idempotent.
  void Stop();

  // Runs `decide` on the thread and passes its result to `answer` once its
  // records are durable. Calls `answer` exactly once: on the thread, or within
  // this call if the event is refused. A call whose caller is gone ends with
  // CANCELLED, and is not decided.
  template <typename Result>
  void Post(
      std::function<absl::StatusOr<Result>(Coordinator&, absl::Time)> decide,
      std::function<void(absl::StatusOr<Result>)> answer,
      CallOrigin origin = {}) {
    auto result = std::make_shared<absl::StatusOr<Result>>(
        absl::UnknownError("not decided"));
    Event event;
    event.decide = [result, decide = std::move(decide)](
                       Coordinator& coordinator, absl::Time now) {
      *result = decide(coordinator, now);
      if constexpr (requires(const Result& one) { one.ByteSizeLong(); }) {
        if (result->ok()) return (*result)->ByteSizeLong();
      }
      return size_t{0};
    };
    event.origin = std::move(origin);
    event.answer = [result,
                    answer = std::move(answer)](const absl::Status& durable) {
      if (durable.ok()) {
        answer(std::move(*result));
      } else {
        answer(durable);
      }
    };
    PostEvent(std::move(event));
  }

  // Reads the present state for callers that may be many. Those that wait with
  // the same `key` share one view: `build` copies what it needs on the thread,
  // after the calls came and from durable state only, and returns the function
  // that makes the view in the read pool. Builds take at most a tenth of the
  // thread's time, and a view answers at most 16 readers. `check` is asked for
  // each call, on the thread, right before. Calls `answer` exactly once, in the
  // read pool with a view; an error, also of `check`, on the thread, or within
  // this call if the read is refused.
  template <typename View>
  void Read(std::string key, std::function<absl::Status(Coordinator&)> check,
            std::function<std::function<View()>(Coordinator&, absl::Time)>
                build,
            std::function<void(absl::StatusOr<std::shared_ptr<const View>>)>
                answer,
            CallOrigin origin = {}) {
    Event event;
    event.view_key = std::move(key);
    event.check = std::move(check);
    event.build = [build = std::move(build)](Coordinator& coordinator,
                                             absl::Time now) {
      return [make = build(coordinator, now)]() -> std::shared_ptr<const void> {
        return std::make_shared<const View>(make());
      };
    };
    event.answer_view = [answer](const std::shared_ptr<const void>& view) {
      answer(std::static_pointer_cast<const View>(view));
    };
    event.answer = std::move(answer);
    event.origin = std::move(origin);
    PostEvent(std::move(event));
  }

  // Each sink gets the present state at once, then changes
  // (service/plan_publisher.h). A sink is
  // dropped when done or ended. A refused sink is ended with the error.
  // `log_seen` is the newest position that the caller has seen. `check` says
  // whether the caller may see the run. `origin.is_gone` is not used.
  using RunCheck =
      std::function<absl::Status(const Coordinator&, const RunMachine&)>;
  static absl::Status AllowAny(const Coordinator&, const RunMachine&) {
    return absl::OkStatus();
  }
  void WatchIsland(const std::string& run_id, const IslandCredentials& island,
                   std::shared_ptr<PlanPublisher::IslandSink> sink,
                   const v1::LogPosition& log_seen = {},
                   RunCheck check = AllowAny, CallOrigin origin = {});
  void WatchServer(const std::string& server_id, int64_t incarnation,
                   std::shared_ptr<PlanPublisher::ServerSink> sink,
                   const v1::LogPosition& log_seen = {},
                   const std::string& directory_id = "",
                   uint64_t features = 0, CallOrigin origin = {});
  // Errors: as TrainingStateService.WatchRun. `reader`: streams of one reader
  // are limited like those of an island; empty: they are not.
  void WatchLog(const std::string& run_id, int64_t after_revision,
                std::shared_ptr<RunEventWriter> sink,
                RunCheck check = AllowAny, const std::string& reader = "",
                CallOrigin origin = {});

  const Store& store() const { return *spec_.store; }
  // Where queries read the store. It stops with the loop.
  ReadPool& reads() { return reads_; }

 private:
  using MakeView = std::function<std::shared_ptr<const void>()>;
  struct Event {
    // Returns the bytes of the answer.
    std::function<size_t(Coordinator&, absl::Time)> decide;
    std::function<void(const absl::Status& durable)> answer;
    CallOrigin origin;
    // Instead of `decide`, of a Read. `answer` gets errors only.
    std::string view_key;  // Empty: none.
    std::function<absl::Status(Coordinator&)> check;
    std::function<MakeView(Coordinator&, absl::Time)> build;
    std::function<void(const std::shared_ptr<const void>&)> answer_view;
  };
  struct LogWatch {
    std::string run_id;
    std::shared_ptr<RunEventWriter> sink;
    RunCheck check;
    std::string reader;
  };

  explicit EventLoop(const Spec& spec)
      : spec_(spec), plans_(spec.plan_streams), waiting_(spec.waiting) {}

  void PostEvent(Event event);
  // The clock's time, shifted so that it never precedes the newest stored time.
  absl::Time Now() const { return spec_.clock->Now() + ahead_; }
  void Run();
  // Waits for events or for time, and moves the events to `queued`. True: the
  // loop stops.
  bool TakeArrived(CallQueue<Event>& queued);
  // Reads the clock where the queue is read, and notes a stall before it.
  void Look();
  // Rebuilds the core from the store and begins a new life.
  absl::Status Recover();
  // Recovers if it is time to, and feeds all streams then.
  void TryToRecover();
  void SetFailure(const absl::Status& failure);
  // Decides the first events of `queued` at `look_time_`, as many as one batch
  // may have and at least one of each rank. Then decides what is due by then,
  // unless calls of other than readers are left: they come before later ones, so
  // that none waits forever.
  void RunBatch(CallQueue<Event>& queued);
  void AnswerAll(std::vector<Event> events, const absl::Status& durable);
  // Answers the reads of the key whose turn it is, unless it is too soon.
  // Requires: the state is durable.
  void ServeReads();
  void RefuseReads(const absl::Status& status);
  // When ServeReads is needed; InfiniteFuture: not.
  absl::Time NextRead() const {
    return read_turns_.empty() ? absl::InfiniteFuture() : next_read_;
  }
  absl::Status MakeDurable(const Batch& batch);
  void PublishEvents(const Effects& effects);
  // Calls on_refusal if the refusal has changed.
  void ShowRefusal();
  // Tells the core which islands have lost their last plan stream.
  void NoteEndedStreams();
  void NoteStream(const std::string& run_id, const IslandCredentials& island,
                  bool has_begun);
  // The pages that all event streams of a run share, while there is one.
  std::shared_ptr<RunEventPages> FindPages(const std::string& run_id,
                                           const std::string& run_uid);
  void EndAll();

  const Spec spec_;

  // --- Used by the thread only -----------------------------------------------
  std::unique_ptr<Coordinator> coordinator_;
  absl::Duration ahead_;  // Added to the clock; >= 0.
  // When the queue was last read, or the life began.
  absl::Time look_time_ = absl::InfinitePast();
  absl::Duration stall_;  // Stall that the core does not know yet.
  absl::Status failure_;  // Not OK: the core must be rebuilt.
  absl::Time recovery_time_ = absl::InfinitePast();
  absl::Status shown_refusal_;  // By on_refusal.
  PlanPublisher plans_;
  std::list<LogWatch> log_watches_;
  std::map<std::string, std::vector<Event>> waiting_reads_;  // By view_key.
  std::deque<std::string> read_turns_;  // Each key of waiting_reads_.
  absl::Time next_read_ = absl::InfinitePast();
  // By run_uid: a deleted run's id may be another run's by now.
  std::map<std::string, std::weak_ptr<RunEventPages>> event_pages_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Event> queue_ ABSL_GUARDED_BY(mutex_);
  // The events that are not answered yet.
  WaitingCalls waiting_ ABSL_GUARDED_BY(mutex_);
  // Reads that the pool has answered and `waiting_` still counts. A thread of
  // the pool has a low priority, so it holds the mutex only to add one here.
  std::vector<std::vector<CallOrigin>> answered_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  ReadPool reads_;
  std::thread thread_;
};

}  // namespace atl::coordinator
