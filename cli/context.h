// What every subcommand is given, and how it hands over its work.
//
// Thread-compatible.

#ifndef CLI_CONTEXT_H_
#define CLI_CONTEXT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rpc/channel.h"
#include "cli/output/output.h"
#include "cli/output/progress.h"
#include "cli/settings/settings.h"
#include "coordinator/client/run_client.h"

namespace atl::cli {

// The version of this program.
inline constexpr char kProgramVersion[] = "0.1.0";

class Context {
 public:
  explicit Context(Output& output) : output_(output) {}

  // Filled in by main before the action runs.
  Settings settings;
  std::string executable;              // Path of the running binary.
  Progress::Options progress_options;  // Of the message stream.

  // What the chosen subcommand does; set while the command line is parsed.
  std::function<absl::Status(Context&)> action;

  Output& output() { return output_; }

  // A client of the coordinator that the settings name.
  absl::StatusOr<std::unique_ptr<coordinator::RunClient>> MakeRunClient() const;

  // The same for another address.
  absl::StatusOr<std::unique_ptr<coordinator::RunClient>> MakeRunClient(
      const std::string& address) const;

  // What the settings say of connections.
  rpc::ChannelOptions MakeChannelOptions(rpc::ChannelKind kind) const;

 private:
  Output& output_;
};

}  // namespace atl::cli

#endif  // CLI_CONTEXT_H_
