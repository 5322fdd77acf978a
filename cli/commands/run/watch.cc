#include <algorithm>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/run_commands.h"
#include "cli/flags/number_check.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

struct WatchOptions {
  std::string run_id;
  int64_t after_revision = 0;
};

struct Place {
  int64_t revision = 0;    // Of the newest event to skip.
  int64_t commit_seq = 0;  // Of the newest round that was printed.
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
absl::Status ListInstead(const std::string& run_id,
                         coordinator::OperatorClient& client, Printer& printer,
                         Place& place) {
  v1::GetRunStateRequest state_request;
  state_request.set_run_id(run_id);
  ASSIGN_OR_RETURN(const v1::GetRunStateResponse state,
                   client.GetRunState(state_request));
  const int64_t revision = state.run().revision();
  printer.Message(absl::StrCat("events after revision ", place.revision,
                               " are compacted: lists the rounds since, then "
                               "resumes after revision ",
                               revision));
  v1::ListRoundsRequest request;
  request.set_run_id(run_id);
  request.set_after_commit_seq(place.commit_seq);
  bool more = place.commit_seq < state.commit_seq();
  while (more) {
    ASSIGN_OR_RETURN(v1::ListRoundsResponse response,
                     client.ListRounds(request));
    for (v1::Round& round : *response.mutable_rounds()) {
      // Later ones come as events.
      if (round.commit_seq() > state.commit_seq()) break;
      v1::RunEvent event;
      *event.mutable_time() = round.commit_time();
      *event.mutable_round_committed() = std::move(round);
      printer.Print(event);
    }
    request.set_page_token(response.next_page_token());
    more = !request.page_token().empty();
  }
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

// Prints events until the run ends. CANCELLED: `stop` was requested.
absl::Status PrintEvents(Context& context, const WatchOptions& options,
                         std::stop_token stop) {
  ASSIGN_OR_RETURN(auto client, context.MakeOperatorClient({.stop = stop}));
  // The spec does not change during the watch.
  v1::GetRunRequest run_request;
  run_request.set_run_id(options.run_id);
  ASSIGN_OR_RETURN(const v1::GetRunResponse run, client->GetRun(run_request));
  Printer printer(run.run().spec().schedule(), context.output());
  Place place = {options.after_revision, 0};
  while (true) {
    v1::WatchRunRequest request;
    request.set_run_id(options.run_id);
    request.set_after_revision(place.revision);
    const absl::Status status = client->WatchRun(
        request, context.settings.timeout(),
        [&](const v1::RunEvent& event) {
          printer.Print(event);
          place.revision = event.revision();
          place.commit_seq =
              std::max(place.commit_seq, event.round_committed().commit_seq());
          return true;
        },
        stop);
    if (GetReason(status) != "REVISION_COMPACTED") return status;
    RETURN_IF_ERROR(ListInstead(options.run_id, *client, printer, place));
  }
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

void AddRunWatch(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "watch", "Print what happens in a run until it ends or Ctrl-C");
  command->footer(
      "Each event has a revision; --after REVISION resumes after it. If the\n"
      "events are no longer kept, the committed rounds are printed instead.\n"
      "Example:\n  atoll run watch laptop -o jsonl --after 120");
  auto options = std::make_shared<WatchOptions>();
  command->add_option("run", options->run_id, "Id of the run")->required();
  command
      ->add_option("--after", options->after_revision,
                   "Print only events with a greater revision")
      ->check(NotNegative());
  SetAction(*command, context, WatchRun, options);
}

}  // namespace atl::cli
