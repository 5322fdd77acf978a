#include "cli/commands/join_enrolment.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/unique_fd.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "cli/doctor/check_before_join.h"
#include "cli/enrol/call_gate.h"
#include "cli/enrol/join_input.h"
#include "cli/flags/data_cache_flags.h"
#include "coordinator/client/data_url_client.h"

namespace atl::cli {
namespace {

// How long an island waits for a certificate in place of an expired one.
constexpr absl::Duration kRenewalPatience = absl::Hours(24 * 31);

}  // namespace

absl::StatusOr<std::optional<Enrolment>> EnrolIsland(
    Context& context, const SandboxMark& sandbox, const JoinRequestFlags& flags,
    const Lent& lent, const std::stop_token& stop) {
  if (sandbox.is_inside) {
    if (sandbox.enrolment_directory.empty()) return std::nullopt;
    ASSIGN_OR_RETURN(Enrolment enrolment,
                     Enrolment::Read(sandbox.enrolment_directory));
    return enrolment;
  }
  ASSIGN_OR_RETURN(const UniqueFd waker, MakeWaker());
  const std::stop_callback end_call(stop, [&] { SetWaker(waker.get()); });
  return FindEnrolment(
      flags, absl::StrCat(context.state_directory, "/enrolments"),
      StandardJoinInput(), context.messages(),
      CheckBeforeJoin(
          [&, call = MakeGateCall(context.settings.proxy())](
              GatePeer peer, const v1::GateRequest& request) {
            peer.stop_fd = waker.get();
            return call(peer, request);
          },
          context.state_directory, lent),
      absl::Now());
}

absl::StatusOr<worker::IslandProgress> RunEnrolled(
    const worker::RunIslandOptions& island, const Enrolment& enrolment,
    EnrolmentRenewer& renewer) {
  while (true) {
    RETURN_IF_ERROR(renewer.WaitUntilValid(kRenewalPatience, island.stop));
    const absl::Time certificate_end = enrolment.EndTime();
    absl::StatusOr<worker::IslandProgress> end = worker::RunIsland(island);
    // The next certificate may be here by now.
    if (!absl::IsUnauthenticated(end.status()) ||
        island.stop.stop_requested() || absl::Now() < certificate_end) {
      return end;
    }
    LOG(WARNING) << "the certificate expired meanwhile: "
                 << end.status().message();
  }
}

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
