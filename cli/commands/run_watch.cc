#include <cstdint>
#include <memory>
#include <string>

#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/describe.h"
#include "cli/interrupt.h"

namespace atl::cli {
namespace {

struct WatchOptions {
  std::string run_id;
  int64_t after_revision = 0;
};

absl::Status WatchRun(Context& context, const WatchOptions& options) {
  Interrupt interrupt;
  ASSIGN_OR_RETURN(auto client, context.MakeRunClient());
  v1::WatchRunRequest request;
  request.set_run_id(options.run_id);
  request.set_after_revision(options.after_revision);
  Output& output = context.output();
  absl::Status status = client->WatchRun(
      request, context.settings.timeout(),
      [&](const v1::RunEvent& event) {
        output.PrintEvent(ToJson(event), DescribeEvent(event));
        return true;
      },
      interrupt.first());
  // Ctrl-C is how a watch is meant to end.
  if (absl::IsCancelled(status) && interrupt.first().stop_requested()) {
    status = absl::OkStatus();
  }
  if (status.ok()) output.FinishStream("events");
  return status;
}

}  // namespace

void AddRunWatch(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "watch", "Print what happens in a run until it ends or Ctrl-C");
  command->footer(
      "Each event has a revision; --after REVISION goes on behind it.\n"
      "Example:\n  atoll run watch laptop -o jsonl --after 120");
  auto options = std::make_shared<WatchOptions>();
  command->add_option("run", options->run_id, "Id of the run")->required();
  command
      ->add_option("--after", options->after_revision,
                   "Only events with a greater revision")
      ->check(CLI::NonNegativeNumber);
  command->callback([&context, options] {
    context.action = [options](Context& context) {
      return WatchRun(context, *options);
    };
  });
}

}  // namespace atl::cli
