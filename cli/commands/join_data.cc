#include "cli/commands/join_data.h"

#include <utility>

#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "cli/flags/data_cache_flags.h"
#include "coordinator/client/data_url_client.h"

namespace atl::cli {

worker::StoreOpener MakeDataOpener(const Context& context, const JoinedRun& run,
                                   const rpc::Security& security,
                                   const std::optional<Enrolment>& enrolment,
                                   const std::stop_token& stop) {
  worker::StoreAccess access;
  if (!security.tls.ca.empty()) {
    access.read_authorities = [file = security.tls.ca] {
      return ReadFile(PosixFileSystem(), file);
    };
  }
  if (enrolment.has_value()) {
    access.data_token = [enrolment = *enrolment] {
      return enrolment.ReadDataToken();
    };
  }
  access.sign_url =
      [address = run.coordinator_address, run_id = run.run_id, stop,
       channel = rpc::MakeChannelOptions(rpc::ChannelKind::kControl, security)](
          const std::string& path) {
        return coordinator::SignDataUrl(address, channel, run_id, path, stop);
      };
  // The operator chose the name of an enrolled island's coordinator.
  return MakeRunStoreOpener(context.settings, context.environment,
                            MakeBlockFinder(run.coordinator_address,
                                            /*looks_up=*/!enrolment.has_value(),
                                            context.settings.proxy()),
                            std::move(access));
}

}  // namespace atl::cli
