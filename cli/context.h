// The context that every subcommand receives and stores its action in.
//
// Thread-compatible.

#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/channel.h"
#include "cli/output/output.h"
#include "cli/output/progress.h"
#include "cli/settings/settings.h"
#include "coordinator/client/client.h"

namespace atl::cli {

// How a command uses its client.
struct ClientUse {
  // Ends calls at once. A command with an Interrupt passes its first().
  std::stop_token stop = {};
  // Shows what a call waits for; outlives the client. Null: messages().
  Progress* progress = nullptr;
  // The coordinator's address; empty: the one that the settings name.
  std::string address = {};
};

class Context {
 public:
  // Both outlive this. `messages` is the stream for people.
  Context(Output& output, std::ostream& messages)
      : output_(output), messages_(messages) {}

  // Set by main before the action runs.
  Settings settings;
  std::string executable;              // Path of the running binary.
  std::vector<std::string> arguments;  // The command line, argv[0] first.
  std::string profile_path;            // Empty: none was looked for.
  std::string state_directory;         // Default parent of --dir of islands.
  std::string kubernetes_api;          // The pod's; empty: this is no pod.
  Environment environment;             // For the credentials of data by URL.
  Progress::Options progress_options;  // How the message stream shows progress.

  // Called before a client is made, to renew its certificate; ends early if
  // the stop is requested. Null: does nothing.
  std::function<absl::Status(const std::stop_token&)> before_client;

  // The work of the chosen subcommand; set while the command line is parsed.
  std::function<absl::Status(Context&)> action;

  Output& output() { return output_; }
  std::ostream& messages() { return messages_; }

  // A client of the coordinator.
  absl::StatusOr<std::unique_ptr<coordinator::Client>> MakeClient(
      const ClientUse& use = {}) const;

  rpc::Security MakeSecurity() const;
  rpc::ChannelOptions MakeChannelOptions(rpc::ChannelKind kind) const;

 private:
  Output& output_;
  std::ostream& messages_;
};

// Sets the action to `run` with `options` if `command` is chosen.
template <typename Run, typename Options>
void SetAction(flags::Command& command, Context& context, Run run,
               std::shared_ptr<Options> options) {
  command.Action([&context, run, options] {
    context.action = [run, options](Context& context) {
      return run(context, *options);
    };
  });
}

}  // namespace atl::cli
