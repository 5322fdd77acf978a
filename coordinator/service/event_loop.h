// The one thread that the coordinator's core runs on.
//
// Events queue up. The thread takes all that wait, lets the core decide them
// one by one, makes the records of all of them durable in one synced batch,
// and only then answers them and sends plans. So nothing is seen that could
// still be lost, and a slow disk makes batches, not a queue. The thread also
// wakes for the core's timers.
//
// If a batch cannot be made durable, its events are answered with the error,
// the core is built again from the store, and until that works every event is
// refused with the same error: nothing of the failed batch was seen.
//
// Thread-safe.

#ifndef COORDINATOR_SERVICE_EVENT_LOOP_H_
#define COORDINATOR_SERVICE_EVENT_LOOP_H_

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
#include "coordinator/store/store.h"

namespace atl::coordinator {

// Where plans of one stream go. Called by the loop's thread alone; must not
// block.
template <typename Plan>
class PlanSink {
 public:
  virtual ~PlanSink() = default;
  // The newest plan; what it replaces need not be sent.
  virtual void Offer(Plan plan) = 0;
  // Nothing follows.
  virtual void End(absl::Status status) = 0;
  // True once the receiver is gone.
  virtual bool done() const = 0;
};

// Is told how far a run's log is durable, and whether the run has ended.
// As PlanSink.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void OnDurable(int64_t revision, bool run_ended) = 0;
  virtual void End(absl::Status status) = 0;
  virtual bool done() const = 0;
};

class EventLoop {
 public:
  struct Spec {
    Store* store = nullptr;        // Must outlive the loop.
    const Clock* clock = nullptr;  // The same.
    CoordinatorOptions coordinator;
    // Events that may wait; more are refused with RESOURCE_EXHAUSTED.
    size_t queue_max = 8192;
    // Streams of each kind.
    size_t streams_max = 4096;
    // Of these, of one island's, or one server's, plan: its newest ones.
    size_t streams_a_caller_max = 4;
    // Between two attempts to come back after a failed append.
    absl::Duration recovery_period = absl::Seconds(1);
  };

  // Replays the store, begins a new life of the coordinator, durably, and
  // starts the thread.
  //
  // DATA_LOSS: the logs do not fit together. Else the store's errors.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Start(const Spec& spec);

  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Refuses all events from now on with UNAVAILABLE, ends all streams, and
  // joins the thread. Idempotent.
  void Stop();

  // Lets `decide` run on the thread and hands its result to `answer` once all
  // that it recorded is durable. `answer` is called exactly once, on the thread
  // or, if the event is refused, by this call.
  template <typename Result>
  void Post(
      std::function<absl::StatusOr<Result>(Coordinator&, absl::Time)> decide,
      std::function<void(absl::StatusOr<Result>)> answer) {
    auto result = std::make_shared<absl::StatusOr<Result>>(
        absl::UnknownError("not decided"));
    Event event;
    event.decide = [result, decide = std::move(decide)](
                       Coordinator& coordinator, absl::Time now) {
      *result = decide(coordinator, now);
    };
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

  // Streams. Each sink is sent what there is at once, then every change; it is
  // dropped once it is done or was ended. A refused one is ended with the
  // error.
  void WatchIsland(const std::string& run_id, const IslandCredentials& island,
                   std::shared_ptr<PlanSink<v1::IslandPlan>> sink);
  void WatchServer(const std::string& server_id, int64_t incarnation,
                   std::shared_ptr<PlanSink<v1::ServerPlan>> sink);
  // Errors as TrainingStateService.WatchRun.
  void WatchLog(const std::string& run_id, int64_t after_revision,
                std::shared_ptr<LogSink> sink);

  const Store& store() const { return *spec_.store; }

 private:
  struct Event {
    std::function<void(Coordinator&, absl::Time)> decide;
    std::function<void(const absl::Status& durable)> answer;
  };
  struct IslandWatch {
    std::string run_id;
    IslandCredentials island;
    std::shared_ptr<PlanSink<v1::IslandPlan>> sink;
  };
  struct ServerWatch {
    std::string server_id;
    int64_t incarnation = 0;
    std::shared_ptr<PlanSink<v1::ServerPlan>> sink;
  };
  struct LogWatch {
    std::string run_id;
    std::shared_ptr<LogSink> sink;
  };

  explicit EventLoop(const Spec& spec) : spec_(spec) {}

  void PostEvent(Event event);
  // The clock's time; of a clock that was set back since what the store has,
  // so much more that it goes on from there.
  absl::Time Now() const { return spec_.clock->Now() + ahead_; }
  void Run();
  // Builds the core from the store and begins a new life.
  absl::Status Recover();
  void RunBatch(std::deque<Event> batch);
  absl::Status MakeDurable(const Batch& batch);
  void Publish(const Effects& effects);
  // Ends the oldest of those `watches` for which `is_same` holds, until there
  // are fewer than `count_max`.
  template <typename Watch, typename IsSame>
  static void MakeRoom(std::list<Watch>& watches, size_t count_max,
                       IsSame is_same);
  // Sends its plan to a stream; false if the stream is over.
  bool Feed(const IslandWatch& watch);
  bool Feed(const ServerWatch& watch);
  void EndAll();

  const Spec spec_;

  // --- Of the thread alone ---
  std::unique_ptr<Coordinator> coordinator_;
  absl::Duration ahead_;  // Of the clock; >= 0.
  absl::Status failure_;  // Not OK: the core is to be built again.
  absl::Time recovery_time_ = absl::InfinitePast();
  std::list<IslandWatch> island_watches_;
  std::list<ServerWatch> server_watches_;
  std::list<LogWatch> log_watches_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Event> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_SERVICE_EVENT_LOOP_H_
