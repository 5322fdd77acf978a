#include "coordinator/service/event_loop.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/failpoint/failpoint.h"
#include "base/obs/log.h"
#include "base/random_id/random_id.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/outputs/run_events.h"
#include "coordinator/service/replay_logs.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kIdleMax = absl::Seconds(10);
// The queue is read at least this often, unless the thread stalls.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(100);
// If a pause between two reads is longer than this, the excess is a stall. The
// rest counts as time, so leases end even if every sync is slow.
constexpr absl::Duration kPauseMax = absl::Milliseconds(250);
// A shorter stall is not logged.
constexpr absl::Duration kLoggedStallMin = absl::Seconds(1);
// A batch ends at the first of these: its answers are kept until its end.
constexpr size_t kBatchCallsMax = 1024;
constexpr size_t kBatchAnswerBytesMax = 8 << 20;
// Calls of readers: heartbeats wait for them, and their answers may be large.
constexpr size_t kBatchReaderCallsMax = 4;

// After the build of a view no other begins for so many times as long, so that
// builds take little of the thread's time, however many runs are read.
constexpr int kReadRest = 9;
constexpr absl::Duration kReadRestMax = absl::Seconds(1);
// Readers that one view answers; and the rest after it for each but the first,
// because answers take time, too, and heartbeats wait for it.
constexpr int kViewReadersMax = 16;
constexpr absl::Duration kReaderRest = absl::Milliseconds(2);

// Points where tests kill the program. The names are spelled out, so that a
// test finds all of them in the binary.
struct Failpoints {
  const char* before;
  const char* after;
};

// An operator's change of an island has its own name.
Failpoints NameFailpoints(v1::IslandState state) {
  if (state == v1::ISLAND_STATE_REMOVED) {
    return {"coordinator.removal.before", "coordinator.removal.after"};
  }
  if (state == v1::ISLAND_STATE_READMITTED) {
    return {"coordinator.readmission.before", "coordinator.readmission.after"};
  }
  return {"coordinator.member.before", "coordinator.member.after"};
}

Failpoints NameFailpoints(const storage::v1::Record& record) {
  switch (record.body_case()) {
    case storage::v1::Record::kRunCreated:
      return {"coordinator.run.before", "coordinator.run.after"};
    case storage::v1::Record::kRunPlaced:
      return {"coordinator.placement.before", "coordinator.placement.after"};
    case storage::v1::Record::kRunStarted:
      return {"coordinator.start.before", "coordinator.start.after"};
    case storage::v1::Record::kRunStateSet:
      return {"coordinator.state.before", "coordinator.state.after"};
    case storage::v1::Record::kMemberSet:
      return NameFailpoints(record.member_set().state());
    case storage::v1::Record::kRoundOpened:
      return {"coordinator.open.before", "coordinator.open.after"};
    case storage::v1::Record::kRoundSealed:
      return {"coordinator.seal.before", "coordinator.seal.after"};
    case storage::v1::Record::kRoundJudged:
      return {"coordinator.verdict.before", "coordinator.verdict.after"};
    case storage::v1::Record::kRoundCommitted:
      return {"coordinator.commit.before", "coordinator.commit.after"};
    case storage::v1::Record::kRoundAborted:
      return {"coordinator.abort.before", "coordinator.abort.after"};
    case storage::v1::Record::kOutcomesSet:
      return {"coordinator.outcome.before", "coordinator.outcome.after"};
    case storage::v1::Record::kWorkUnpushed:
      return {"coordinator.unpushed.before", "coordinator.unpushed.after"};
    case storage::v1::Record::kRunRestored:
      return {"coordinator.restore.before", "coordinator.restore.after"};
    case storage::v1::Record::kPinSet:
      return {"coordinator.pin.before", "coordinator.pin.after"};
    case storage::v1::Record::kPinReleased:
      return {"coordinator.unpin.before", "coordinator.unpin.after"};
    case storage::v1::Record::kEvaluated:
      return {"coordinator.evaluation.before", "coordinator.evaluation.after"};
    case storage::v1::Record::kCoordinatorStarted:
      return {"coordinator.epoch.before", "coordinator.epoch.after"};
    case storage::v1::Record::kServerSet:
      return {"coordinator.server.before", "coordinator.server.after"};
    case storage::v1::Record::kRunDeleted:
      return {"coordinator.delete.before", "coordinator.delete.after"};
    case storage::v1::Record::kRunForgotten:
      return {"coordinator.forget.before", "coordinator.forget.after"};
    case storage::v1::Record::kTokenSet:
    case storage::v1::Record::kTokenForgotten:
      return {"coordinator.token.before", "coordinator.token.after"};
    case storage::v1::Record::kIdentitySet:
    case storage::v1::Record::kIdentityForgotten:
      return {"coordinator.identity.before", "coordinator.identity.after"};
    case storage::v1::Record::kAudited:
      return {"coordinator.audit.before", "coordinator.audit.after"};
    case storage::v1::Record::BODY_NOT_SET:
      break;
  }
  return {"coordinator.unknown.before", "coordinator.unknown.after"};
}

void HitFailpointsBefore(const Batch& batch) {
  for (const LogEntry& entry : batch.entries) {
    failpoint::Hit(NameFailpoints(entry.record).before);
  }
  if (!batch.snapshots.empty()) failpoint::Hit("coordinator.snapshot.before");
}

void HitFailpointsAfter(const Batch& batch) {
  for (const LogEntry& entry : batch.entries) {
    failpoint::Hit(NameFailpoints(entry.record).after);
  }
  if (!batch.snapshots.empty()) failpoint::Hit("coordinator.snapshot.after");
}

absl::Status Stopping() {
  return Refuse(absl::StatusCode::kUnavailable, "STOPPING",
                "the coordinator is stopping: call again");
}

// The error that callers get while the store takes no records. Callers wait
// and try again after each of its codes.
absl::Status CannotStore(const absl::Status& error) {
  if (GetReason(error).has_value()) return error;
  const std::string text =
      absl::StrCat("the coordinator cannot store its decisions: ",
                   error.message(), "; it tries again until its disk works");
  if (absl::IsResourceExhausted(error)) {
    return RefuseForNow(absl::StatusCode::kResourceExhausted, "DISK_FULL", text,
                        absl::Seconds(1));
  }
  return Refuse(absl::StatusCode::kUnavailable, "DISK_FAILS", text);
}

// A stream's context ends with the stream, maybe before the loop looks at it.
template <typename Sink>
CallOrigin ForStream(CallOrigin origin, std::shared_ptr<Sink> sink) {
  origin.is_gone = [sink = std::move(sink)] { return sink->done(); };
  return origin;
}

// True: nothing else is queued.
template <typename Call>
bool HasOnlyReaders(const CallQueue<Call>& queued) {
  return std::all_of(std::begin(kCallRanks), std::end(kCallRanks),
                     [&](CallRank rank) {
                       return rank == CallRank::kReader || queued.empty(rank);
                     });
}

// Limits the lines of each run by itself, so that no run's lines leave out
// another's. `reasons` begin with "run ID: " if they are of a run.
void LogReasons(const std::vector<std::string>& reasons) {
  for (const absl::string_view reason : reasons) {
    const bool is_of_run = absl::StartsWith(reason, "run ");
    LOG_ABOUT(INFO, is_of_run ? reason.substr(0, reason.find(": ")) : "")
        << reason;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Start(const Spec& spec) {
  std::unique_ptr<EventLoop> loop(new EventLoop(spec));
  RETURN_IF_ERROR(loop->Recover());
  loop->ShowRefusal();
  loop->thread_ = std::thread([raw = loop.get()] { raw->Run(); });
  if (spec.metrics != nullptr) {
    spec.metrics->SetSource([raw = loop.get()](RunMetrics::Take take) {
      raw->Read<std::vector<RunValues>>(
          "metrics", [](Coordinator&) { return absl::OkStatus(); },
          [](Coordinator& coordinator, absl::Time) {
            return [values = ReadShownRuns(coordinator)] { return values; };
          },
          [take = std::move(take)](
              absl::StatusOr<std::shared_ptr<const std::vector<RunValues>>>
                  values) {
            if (values.ok()) return take(**values);
            take(values.status());
          });
    });
  }
  return loop;
}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Stop() {
  if (spec_.metrics != nullptr) spec_.metrics->SetSource(nullptr);
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  reads_.Stop();
}

void EventLoop::PostEvent(Event event) {
  absl::Status refusal;
  {
    MutexLock lock(&mutex_);
    for (const auto& origins : std::exchange(answered_, {})) {
      for (const CallOrigin& origin : origins) waiting_.Release(origin);
    }
    if (stopping_) {
      refusal = Stopping();
    } else {
      refusal = waiting_.Admit(event.origin);
    }
    if (refusal.ok()) {
      queue_.push_back(std::move(event));
      changed_.Signal();
      return;
    }
  }
  event.answer(refusal);
}

absl::Status EventLoop::Recover() {
  auto coordinator = std::make_unique<Coordinator>(spec_.coordinator);
  ASSIGN_OR_RETURN(const Replayed replayed,
                   ReplayLogs(*spec_.store, *coordinator));
  ahead_ = std::max(ahead_, coordinator->newest_time() - spec_.clock->Now());
  if (ahead_ > absl::Minutes(1)) {
    LOG(WARNING) << "the newest record is " << absl::FormatDuration(ahead_)
                 << " ahead of the clock; new records continue from its time";
  }
  const absl::Time now = Now();
  look_time_ = now;
  stall_ = absl::ZeroDuration();
  absl::Status damage = spec_.store->damage();
  damage.Update(replayed.damage);
  if (damage.ok()) {
    coordinator->Start(now, {RandomId(), RandomId(), RandomId()},
                       spec_.store->index());
  } else {
    LOG(ERROR) << "the log is damaged; the coordinator only reads: " << damage;
    coordinator->StartDamaged(now, damage);
  }
  const Effects effects = coordinator->TakeEffects(now);
  RETURN_IF_ERROR(MakeDurable(effects.batch));
  LOG(INFO) << "epoch " << coordinator->coordinator_epoch() << ", from "
            << replayed.snapshot_count << " snapshots and "
            << replayed.record_count
            << " records after them";
  LogReasons(effects.reasons);
  coordinator_ = std::move(coordinator);
  return absl::OkStatus();
}

absl::Status EventLoop::MakeDurable(const Batch& batch) {
  if (batch.empty()) return absl::OkStatus();
  HitFailpointsBefore(batch);
  const absl::Time start = spec_.clock->Now();
  const absl::Status appended = spec_.store->Append(batch);
  if (spec_.fsync_seconds != nullptr) {
    spec_.fsync_seconds->Observe(
        absl::ToDoubleSeconds(spec_.clock->Now() - start));
  }
  RETURN_IF_ERROR(appended);
  HitFailpointsAfter(batch);
  return absl::OkStatus();
}

void EventLoop::Run() {
  CallQueue<Event> queued;
  bool is_last = false;
  while (!is_last) {
    if (HasOnlyReaders(queued)) is_last = TakeArrived(queued);
    if (!is_last) RunBatch(queued);
  }
  while (!queued.empty()) RunBatch(queued);
  EndAll();
}

bool EventLoop::TakeArrived(CallQueue<Event>& queued) {
  const absl::Time next =
      std::min(failure_.ok() ? std::min({coordinator_->NextTimer(),
                                         plans_.NextSend(),
                                         plans_.NextSweep(), NextRead()})
                             : recovery_time_,
               Now() + kIdleMax);
  std::deque<Event> arrived;
  bool is_last = false;
  {
    MutexLock lock(&mutex_);
    while (true) {
      Look();
      if (!queued.empty() || !queue_.empty() || stopping_ ||
          look_time_ >= next) {
        break;
      }
      changed_.WaitWithTimeout(&mutex_,
                               std::min(next - look_time_, kLookPeriod));
    }
    is_last = stopping_;
    arrived.swap(queue_);
  }
  for (Event& event : arrived) queued.Push(std::move(event));
  return is_last;
}

void EventLoop::Look() {
  const absl::Time now = Now();
  const absl::Duration pause = now - look_time_;
  if (pause > kPauseMax) stall_ += pause - kPauseMax;
  look_time_ = now;
}

void EventLoop::SetFailure(const absl::Status& failure) {
  if (failure != failure_) {
    LOG(ERROR) << "cannot store the newest decisions: " << failure
               << "; they were not sent; will try again";
  }
  failure_ = failure;
  recovery_time_ = Now() + spec_.recovery_period;
  ShowRefusal();
}

void EventLoop::ShowRefusal() {
  const absl::Status refusal =
      failure_.ok() ? coordinator_->CheckWritable() : CannotStore(failure_);
  if (refusal == shown_refusal_) return;
  shown_refusal_ = refusal;
  if (spec_.on_refusal) spec_.on_refusal(refusal);
}

void EventLoop::TryToRecover() {
  if (look_time_ < recovery_time_) return;
  const absl::Status recovered = Recover();
  if (!recovered.ok()) return SetFailure(recovered);
  failure_ = absl::OkStatus();
  if (spec_.store->damage().ok()) LOG(INFO) << "the store takes records again";
  for (const auto& [run_id, island] : plans_.ListIslands()) {
    NoteStream(run_id, island, /*has_begun=*/true);
  }
  plans_.NoteAll(*coordinator_);
  plans_.Send(*coordinator_, look_time_);
  Effects all;
  for (const LogWatch& watch : log_watches_) {
    all.changed_runs.insert(watch.run_id);
  }
  PublishEvents(all);
  ShowRefusal();
  if (spec_.on_mirror_due) spec_.on_mirror_due();  // For the new start.
}

void EventLoop::AnswerAll(std::vector<Event> events,
                          const absl::Status& durable) {
  {
    // First: who has its answer may call again at once.
    MutexLock lock(&mutex_);
    for (const Event& event : events) waiting_.Release(event.origin);
  }
  for (Event& event : events) event.answer(durable);
}

void EventLoop::RunBatch(CallQueue<Event>& queued) {
  std::vector<Event> batch;
  if (!failure_.ok()) TryToRecover();
  if (!failure_.ok()) {
    for (const CallRank rank : kCallRanks) {
      while (!queued.empty(rank)) batch.push_back(queued.Pop(rank));
    }
    return AnswerAll(std::move(batch), CannotStore(failure_));
  }
  const absl::Duration stall = std::exchange(stall_, absl::ZeroDuration());
  if (stall >= kLoggedStallMin) {
    LOG(WARNING) << "read no calls for " << absl::FormatDuration(stall)
                 << " (a slow disk, or a stopped machine or process); leases, "
                    "windows and deadlines end later by that time";
  }
  if (stall > absl::ZeroDuration()) coordinator_->AddStall(stall);
  // Not a newer time: inputs that came after the look are not read yet.
  const absl::Time now = look_time_;
  std::vector<Event> abandoned;
  size_t answer_bytes = 0;
  // True if it counts: reads are only sorted here.
  const auto take = [&](Event event) {
    if (!event.view_key.empty()) {
      std::vector<Event>& same = waiting_reads_[event.view_key];
      if (same.empty()) read_turns_.push_back(event.view_key);
      same.push_back(std::move(event));
      return false;
    }
    if (event.origin.gone()) {
      abandoned.push_back(std::move(event));
      return true;
    }
    answer_bytes += event.decide(*coordinator_, now);
    batch.push_back(std::move(event));
    return true;
  };
  for (const CallRank rank : kCallRanks) {
    size_t left = rank == CallRank::kReader ? kBatchReaderCallsMax
                                            : kBatchCallsMax;
    // At least one of each rank.
    while (left > 0 && !queued.empty(rank)) {
      if (!take(queued.Pop(rank))) continue;
      const bool is_full = batch.size() >= kBatchCallsMax ||
                           answer_bytes >= kBatchAnswerBytesMax;
      left = is_full ? 0 : left - 1;
    }
  }
  AnswerAll(std::move(abandoned), absl::CancelledError("the caller is gone"));
  // Otherwise leases would end whose heartbeats are queued.
  if (HasOnlyReaders(queued)) coordinator_->Advance(now);
  const Effects effects = coordinator_->TakeEffects(now);
  const absl::Status durable = MakeDurable(effects.batch);
  if (!durable.ok()) {
    SetFailure(durable);
    RefuseReads(CannotStore(durable));
    return AnswerAll(std::move(batch), CannotStore(durable));
  }
  LogReasons(effects.reasons);
  for (const std::string& warning : effects.warnings) LOG(WARNING) << warning;
  for (const std::string& warning : ListWarnings(effects.batch)) {
    LOG(WARNING) << warning;
  }
  if (spec_.metrics != nullptr) spec_.metrics->Count(effects);
  plans_.Note(*coordinator_, effects);
  plans_.Send(*coordinator_, now);
  PublishEvents(effects);
  ShowRefusal();
  if (effects.mirror_due && spec_.on_mirror_due) spec_.on_mirror_due();
  AnswerAll(std::move(batch), absl::OkStatus());
  NoteEndedStreams();  // Answers may have begun new ones.
  ServeReads();
}

void EventLoop::ServeReads() {
  if (read_turns_.empty() || Now() < next_read_) return;
  // Operators' reads, and our own, come before others'.
  auto turn = std::find_if(
      read_turns_.begin(), read_turns_.end(), [this](const std::string& key) {
        const std::vector<Event>& reads = waiting_reads_[key];
        return std::any_of(reads.begin(), reads.end(), [](const Event& read) {
          return read.origin.rank == CallRank::kOperator;
        });
      });
  if (turn == read_turns_.end()) turn = read_turns_.begin();
  const auto first = waiting_reads_.find(*turn);
  std::vector<Event> asked, left;
  int reader_count = 0;
  for (Event& event : std::exchange(first->second, {})) {
    const bool is_reader =
        event.origin.rank == CallRank::kReader && !event.origin.gone();
    const bool is_left = is_reader && reader_count == kViewReadersMax;
    if (is_reader && !is_left) ++reader_count;
    (is_left ? left : asked).push_back(std::move(event));
  }
  read_turns_.erase(turn);
  if (left.empty()) {
    waiting_reads_.erase(first);
  } else {
    read_turns_.push_back(first->first);
    first->second = std::move(left);
  }
  auto reads = std::make_shared<std::vector<Event>>();
  for (Event& event : asked) {
    const absl::Status status =
        event.origin.gone()
            ? absl::CancelledError("the caller is gone")
            : event.check(*coordinator_);
    if (status.ok()) {
      reads->push_back(std::move(event));
      continue;
    }
    std::vector<Event> refused;
    refused.push_back(std::move(event));
    AnswerAll(std::move(refused), status);
  }
  if (reads->empty()) return;
  const absl::Time begin = Now();
  MakeView make = reads->front().build(*coordinator_, look_time_);
  const absl::Time end = Now();
  next_read_ = end + std::max(std::min(kReadRest * (end - begin), kReadRestMax),
                              kReaderRest * (reader_count - 1));
  reads_.RunOwn([this, reads, make = std::move(make)] {
    const std::shared_ptr<const void> view = make();
    std::vector<CallOrigin> origins;
    for (Event& event : *reads) origins.push_back(std::move(event.origin));
    {
      // First: a reader may call again as soon as it has its answer.
      MutexLock lock(&mutex_);
      answered_.push_back(std::move(origins));
    }
    for (const Event& event : *reads) event.answer_view(view);
  });
}

void EventLoop::RefuseReads(const absl::Status& status) {
  for (auto& [key, reads] : std::exchange(waiting_reads_, {})) {
    AnswerAll(std::move(reads), status);
  }
  read_turns_.clear();
}

void EventLoop::NoteEndedStreams() {
  for (const auto& [run_id, island] : plans_.TakeEnded()) {
    NoteStream(run_id, island, /*has_begun=*/false);
  }
}

void EventLoop::NoteStream(const std::string& run_id,
                           const IslandCredentials& island, bool has_begun) {
  const absl::StatusOr<RunMachine*> run = coordinator_->FindRun(run_id);
  if (!run.ok()) return;
  (*run)
      ->Step(event::PlanStream{island, has_begun}, look_time_)
      .IgnoreError();
}

void EventLoop::PublishEvents(const Effects& effects) {
  if (effects.changed_runs.empty()) return;
  // Another run may have the id by now, and these streams are not of it.
  const auto end_if_deleted = [&](const LogWatch& watch) {
    const std::vector<std::string>& ids = effects.batch.deleted_runs;
    if (std::find(ids.begin(), ids.end(), watch.run_id) == ids.end()) {
      return false;
    }
    watch.sink->End(
        Refuse(absl::StatusCode::kNotFound, "NO_SUCH_RUN",
               absl::StrCat("run ", watch.run_id, " was deleted")));
    return true;
  };
  std::vector<std::shared_ptr<RunEventWriter>> due;
  log_watches_.remove_if([&](const LogWatch& watch) {
    if (watch.sink->done() || end_if_deleted(watch)) return true;
    const absl::StatusOr<RunMachine*> run = coordinator_->FindRun(watch.run_id);
    const absl::Status allowed =
        run.ok() ? watch.check(*coordinator_, **run) : run.status();
    if (!allowed.ok()) {
      watch.sink->End(allowed);
      return true;
    }
    if (!effects.changed_runs.contains(watch.run_id)) return false;
    const RunState& state = (*run)->state();
    if (watch.sink->OnDurable(state.revision(), state.ended())) {
      due.push_back(watch.sink);
    }
    return false;
  });
  if (due.empty()) return;
  reads_.RunOwn([due = std::move(due)] {
    for (const auto& sink : due) sink->Continue();
  });
}

void EventLoop::WatchIsland(const std::string& run_id,
                            const IslandCredentials& island,
                            std::shared_ptr<PlanPublisher::IslandSink> sink,
                            const v1::LogPosition& log_seen, RunCheck check,
                            CallOrigin origin) {
  Post<bool>(
      [=](Coordinator& coordinator, absl::Time now) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(coordinator.CheckLog(
            log_seen, {"island", island.island_id, run_id}, now));
        ASSIGN_OR_RETURN(RunMachine* const run, coordinator.FindRun(run_id));
        RETURN_IF_ERROR(check(coordinator, *run));
        RETURN_IF_ERROR(run->Step(event::PlanStream{island}, now).status());
        return true;
      },
      [=, this](absl::StatusOr<bool> result) {
        // A refused event is not on the loop's thread.
        if (!result.ok()) return sink->End(result.status());
        plans_.AddIsland(*coordinator_, run_id, island, sink);
      },
      ForStream(std::move(origin), sink));
}

void EventLoop::WatchServer(const std::string& server_id, int64_t incarnation,
                            std::shared_ptr<PlanPublisher::ServerSink> sink,
                            const v1::LogPosition& log_seen,
                            const std::string& directory_id, uint64_t features,
                            CallOrigin origin) {
  Post<bool>(
      [=](Coordinator& coordinator, absl::Time now) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(
            coordinator.CheckLog(log_seen, {"server", server_id, ""}, now));
        RETURN_IF_ERROR(
            coordinator.CheckServer(server_id, incarnation, directory_id));
        return true;
      },
      [=, this](absl::StatusOr<bool> result) {
        if (!result.ok()) return sink->End(result.status());
        plans_.AddServer(*coordinator_, server_id, incarnation, directory_id,
                         features, sink, look_time_);
      },
      ForStream(std::move(origin), sink));
}

std::shared_ptr<RunEventPages> EventLoop::FindPages(
    const std::string& run_id, const std::string& run_uid) {
  std::shared_ptr<RunEventPages> pages = event_pages_[run_uid].lock();
  if (pages == nullptr) {
    std::erase_if(event_pages_,
                  [](const auto& entry) { return entry.second.expired(); });
    pages = std::make_shared<RunEventPages>(*spec_.store, run_id);
    event_pages_[run_uid] = pages;
  }
  return pages;
}

void EventLoop::WatchLog(const std::string& run_id, int64_t after_revision,
                         std::shared_ptr<RunEventWriter> sink,
                         RunCheck check, const std::string& reader,
                         CallOrigin origin) {
  struct Tail {
    int64_t revision = 0;
    bool ended = false;
    std::string run_uid;
    std::vector<std::string> island_ids;  // By slot.
  };
  Post<Tail>(
      [=](Coordinator& coordinator, absl::Time now) -> absl::StatusOr<Tail> {
        ASSIGN_OR_RETURN(RunMachine* const run, coordinator.FindRun(run_id));
        RETURN_IF_ERROR(check(coordinator, *run));
        if (after_revision < 0 || after_revision > run->state().revision()) {
          return Refuse(
              absl::StatusCode::kOutOfRange, "NO_SUCH_REVISION",
              absl::StrCat("revision ", after_revision,
                           " does not exist; the run's newest one is ",
                           run->state().revision()));
        }
        Tail tail = {run->state().revision(), run->state().ended(),
                     run->state().run_uid()};
        for (const Member& member : run->state().members()) {
          tail.island_ids.push_back(member.record.island_id());
        }
        return tail;
      },
      [=, this](absl::StatusOr<Tail> tail) {
        if (tail.ok() && !reader.empty()) {
          MakeRoom(log_watches_, spec_.event_streams_a_reader_max,
                   [&](const LogWatch& watch) {
                     return watch.run_id == run_id && watch.reader == reader;
                   });
        }
        // A refused event is not on the loop's thread.
        absl::Status status = tail.status();
        if (status.ok()) {
          const auto run_count = static_cast<size_t>(
              std::count_if(log_watches_.begin(), log_watches_.end(),
                            [&](const LogWatch& watch) {
                              return watch.run_id == run_id;
                            }));
          status = CheckRoom(spec_.event_streams, log_watches_.size(),
                             run_count, run_id);
        }
        if (!status.ok()) return sink->End(status);
        sink->Begin(FindPages(run_id, tail->run_uid),
                    std::move(tail->island_ids));
        if (sink->OnDurable(tail->revision, tail->ended)) {
          reads_.RunOwn([sink] { sink->Continue(); });
        }
        log_watches_.push_back({run_id, sink, check, reader});
      },
      ForStream(std::move(origin), sink));
}

void EventLoop::EndAll() {
  RefuseReads(Stopping());
  plans_.EndAll(Stopping());
  for (const LogWatch& watch : log_watches_) watch.sink->End(Stopping());
}

}  // namespace atl::coordinator
