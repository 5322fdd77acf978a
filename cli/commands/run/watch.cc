#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/flags/flags.h"
#include "base/io/posix_file_system.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/run/run_commands.h"
#include "cli/curves/curves.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kWatchTick = absl::Milliseconds(100);
// Time after a run's end for islands to evaluate the last version.
constexpr absl::Duration kEvaluationTimeout = absl::Seconds(60);

struct WatchOptions {
  std::string run_id;
  int64_t after_revision = 0;
  std::string tensorboard;  // Directory; empty: no events.
  std::string csv;          // File; empty: no rows.
};

struct Place {
  int64_t revision = 0;    // The newest event to skip.
  int64_t commit_seq = 0;  // Commit of the newest printed round.
};

class Printer {
 public:
  Printer(const v1::ScheduleSpec& schedule, Output& output)
      : schedule_(schedule), output_(output) {}

  void Print(const v1::RunEvent& event) {
    output_.PrintEvent(ToJson(event), DescribeEvent(event, schedule_));
  }
  void Message(const std::string& text) { output_.Message(text); }

 private:
  const v1::ScheduleSpec schedule_;
  Output& output_;
};

// Replaces compacted events: prints the rounds committed since `place` and the
// run's current state. Moves `place` to that state.
absl::Status ListInstead(const std::string& run_id, coordinator::Client& client,
                         Printer& printer, Place& place) {
  ASSIGN_OR_RETURN(const v1::GetRunStateResponse state,
                   client.GetRunState(run_id));
  const int64_t revision = state.run().revision();
  printer.Message(absl::StrCat("events after revision ", place.revision,
                               " are compacted: lists the rounds since, then "
                               "resumes after revision ",
                               revision));
  RETURN_IF_ERROR(client.ForEachRound(
      run_id, place.commit_seq,
      [&](v1::Round&& round) -> absl::StatusOr<bool> {
        // Later ones come as events.
        if (round.commit_seq() > state.commit_seq()) return false;
        v1::RunEvent event;
        *event.mutable_time() = round.commit_time();
        *event.mutable_round_committed() = std::move(round);
        printer.Print(event);
        return true;
      }));
  v1::RunEvent event;
  event.set_revision(revision);
  *event.mutable_time() = state.run().has_end_time() ? state.run().end_time()
                                                     : state.last_commit_time();
  event.mutable_run_state_changed()->set_state(state.run().state());
  event.mutable_run_state_changed()->set_reason(state.run().state_reason());
  printer.Print(event);
  place = {revision, state.commit_seq()};
  return absl::OkStatus();
}

// An error of a file of curves.
absl::Status CurveError(const absl::Status& status) {
  // Refused: the file is another run's, or another process writes it.
  if (status.ok() || absl::IsFailedPrecondition(status)) return status;
  return WithHint(
      WithExitCode(WithReason(status, "CANNOT_WRITE_CURVES"),
                   ExitCode::kFailed),
      "Free space, or give a place that can be written. The same command then "
      "adds what is missing.");
}

absl::StatusOr<std::unique_ptr<Curves>> OpenCurves(const WatchOptions& options,
                                                   const v1::Run& run) {
  std::unique_ptr<EventWriter> events;
  std::unique_ptr<CsvWriter> csv;
  if (!options.tensorboard.empty()) {
    char host[256] = "";
    ::gethostname(host, sizeof(host) - 1);
    absl::StatusOr<std::unique_ptr<EventWriter>> opened = EventWriter::Open(
        PosixFileSystem(),
        {options.tensorboard, run.run_uid(), host, absl::Now()});
    RETURN_IF_ERROR(CurveError(opened.status()));
    events = *std::move(opened);
  }
  if (!options.csv.empty()) {
    absl::StatusOr<std::unique_ptr<CsvWriter>> opened =
        CsvWriter::Open(PosixFileSystem(), options.csv, run.run_uid());
    RETURN_IF_ERROR(CurveError(opened.status()));
    csv = *std::move(opened);
  }
  return std::make_unique<Curves>(std::move(events), std::move(csv));
}

// Adds every kept round, so curves do not depend on where the watch begins.
absl::Status AddKeptRounds(const WatchOptions& options,
                           coordinator::Client& client, Curves& curves) {
  if (options.tensorboard.empty() && options.csv.empty()) {
    return absl::OkStatus();
  }
  v1::GetMetricsRequest metrics_request;
  metrics_request.set_run_id(options.run_id);
  metrics_request.add_names("loss_metrics/global_avg_loss");
  ASSIGN_OR_RETURN(const v1::GetMetricsResponse metrics,
                   client.Call(&v1::TrainingStateService::Stub::GetMetrics,
                               metrics_request));
  auto restore = metrics.restores().begin();
  // Adds the restores before commit `end`.
  const auto add_restores = [&](int64_t end) -> absl::Status {
    for (; restore != metrics.restores().end() && restore->commit_seq() < end;
         ++restore) {
      RETURN_IF_ERROR(CurveError(curves.Add(*restore)));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(client.ForEachRound(
      options.run_id, 0, [&](v1::Round&& round) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(add_restores(round.commit_seq()));
        RETURN_IF_ERROR(CurveError(curves.Add(round)));
        return true;
      }));
  return add_restores(std::numeric_limits<int64_t>::max());
}

absl::Status AddEvent(const v1::RunEvent& event, Curves& curves) {
  if (event.has_round_committed()) {
    return CurveError(curves.Add(event.round_committed()));
  }
  if (event.has_evaluated()) {
    return CurveError(curves.Add(event.evaluated(), FromProto(event.time())));
  }
  if (event.has_run_restored()) {
    return CurveError(curves.Add(event.run_restored()));
  }
  return absl::OkStatus();
}

// Islands evaluate the last version after the run's end, when no event comes
// any more. Waits for it, but not for one that is overdue.
absl::Status AwaitLastEvaluation(const WatchOptions& options,
                                 const v1::EvaluationSpec& spec,
                                 coordinator::Client& client,
                                 const std::stop_token& stop) {
  if (spec.every_round_count() == 0 ||
      (options.tensorboard.empty() && options.csv.empty())) {
    return absl::OkStatus();
  }
  const absl::Time begin = absl::Now();
  while (!stop.stop_requested()) {
    ASSIGN_OR_RETURN(const v1::GetRunStateResponse state,
                     client.GetRunState(options.run_id));
    const absl::Time deadline =
        std::min(begin, FromProto(state.run().end_time())) + kEvaluationTimeout;
    int64_t version = 0;
    for (const v1::FragmentVersion& fragment : state.cut()) {
      version = std::max(version, fragment.version());
    }
    if (state.run().state() != v1::RUN_STATE_COMPLETED ||
        state.evaluation().version() >= version ||
        state.failed_evaluation().version() >= version ||
        absl::Now() > deadline) {
      return absl::OkStatus();
    }
    absl::SleepFor(kWatchTick);
  }
  return absl::CancelledError("stopped");
}

// Prints events until the run ends. CANCELLED: `stop` was requested.
absl::Status PrintEvents(Context& context, const WatchOptions& options,
                         std::stop_token stop) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient({.stop = stop}));
  // The spec does not change during the watch.
  ASSIGN_OR_RETURN(const v1::GetRunResponse run,
                   client->GetRun(options.run_id));
  ASSIGN_OR_RETURN(const auto curves, OpenCurves(options, run.run()));
  Printer printer(run.run().spec().schedule(), context.output());
  Place place = {options.after_revision, 0};
  while (true) {
    RETURN_IF_ERROR(AddKeptRounds(options, *client, *curves));
    v1::WatchRunRequest request;
    request.set_run_id(options.run_id);
    request.set_after_revision(place.revision);
    absl::Status added;
    const absl::Status status = client->WatchRun(
        request, context.settings.timeout(),
        [&](const v1::RunEvent& event) {
          printer.Print(event);
          place.revision = event.revision();
          place.commit_seq =
              std::max(place.commit_seq, event.round_committed().commit_seq());
          added = AddEvent(event, *curves);
          // Otherwise a reader that has gone would leave it running.
          if (added.ok()) added = context.output().data_status();
          return added.ok();
        },
        stop);
    RETURN_IF_ERROR(added);
    if (status.ok()) break;
    if (GetReason(status) != "REVISION_COMPACTED") return status;
    RETURN_IF_ERROR(ListInstead(options.run_id, *client, printer, place));
  }
  RETURN_IF_ERROR(AwaitLastEvaluation(options, run.run().spec().evaluation(),
                                      *client, stop));
  return AddKeptRounds(options, *client, *curves);
}

absl::Status WatchRun(Context& context, const WatchOptions& options) {
  Interrupt interrupt;
  absl::Status status = PrintEvents(context, options, interrupt.first());
  // Ctrl-C is the normal end of a watch.
  if (absl::IsCancelled(status) && interrupt.first().stop_requested()) {
    status = absl::OkStatus();
  }
  if (status.ok()) context.output().FinishStream("events");
  return status;
}

}  // namespace

void AddRunWatch(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "watch", "Print what happens in a run until it ends or Ctrl-C");
  command.Footer(
      "Each event has a revision; --after REVISION resumes after it. If the\n"
      "events are no longer kept, the committed rounds are printed instead.\n"
      "Curves have every kept round, whatever --after says, and no round "
      "twice:\n"
      "the same command adds what is new. Their step is the commit number.\n"
      "Examples:\n  atoll run watch laptop -o jsonl --after 120\n"
      "  atoll run watch laptop --tensorboard curves/laptop --csv laptop.csv");
  auto options = std::make_shared<WatchOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command
      .Add("--after", options->after_revision,
           "Print only events with a greater revision")
      .Check(flags::NotNegative());
  command.Add("--tensorboard", options->tensorboard,
              "Directory for TensorBoard's event files; give each run "
              "its own");
  command.Add("--csv", options->csv,
              "CSV file with a row for each committed round");
  SetAction(command, context, WatchRun, options);
}

}  // namespace atl::cli
