#include "cli/output/error.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/status_details.h"

namespace atl::cli {
namespace {

constexpr absl::string_view kReasonUrl = "atoll.cli/reason";
constexpr absl::string_view kHintUrl = "atoll.cli/hint";
constexpr absl::string_view kExitCodeUrl = "atoll.cli/exit_code";

absl::Status WithPayload(absl::Status status, absl::string_view url,
                         absl::string_view value) {
  if (!status.ok()) status.SetPayload(url, absl::Cord(value));
  return status;
}

std::optional<std::string> Payload(const absl::Status& status,
                                   absl::string_view url) {
  absl::optional<absl::Cord> cord = status.GetPayload(url);
  if (!cord.has_value()) return std::nullopt;
  return std::string(*cord);
}

// What to do about an error that the other side gave a reason of its own.
// Empty: nothing closer than its code says.
absl::string_view HintOfReason(absl::string_view reason) {
  if (reason == "NO_SUCH_RUN") {
    return "`atoll run list` shows the runs that there are.";
  }
  if (reason == "NOT_STARTED") {
    return "`atoll run show RUN` says what the run waits for.";
  }
  if (reason == "STALE_ISLAND_EPOCH") {
    return "One process at a time may be an island: give one of them another "
           "--island-id.";
  }
  if (reason == "NO_SUCH_ISLAND") {
    return "`atoll island list RUN` shows the islands that there are.";
  }
  if (reason == "ISLAND_REMOVED") {
    return "Ask whoever steers the run; another --island-id is another island.";
  }
  if (reason == "NOT_YOURS") {
    return "A certificate stands for the one id in its common name, "
           "atoll:ROLE:ID; use that id, or another certificate.";
  }
  return "";
}

}  // namespace

bool IsHandshakeFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         absl::StrContains(status.message(), "handshake failed");
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  return WithPayload(std::move(status), kReasonUrl, reason);
}

absl::Status WithHint(absl::Status status, absl::string_view hint) {
  return WithPayload(std::move(status), kHintUrl, hint);
}

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  return WithPayload(std::move(status), kExitCodeUrl,
                     absl::StrCat(static_cast<int>(code)));
}

absl::Status WithContext(const absl::Status& status,
                         absl::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(),
                      absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

absl::Status UsageError(absl::string_view message, absl::string_view hint) {
  absl::Status status =
      WithExitCode(WithReason(absl::InvalidArgumentError(message), "USAGE"),
                   ExitCode::kUsage);
  return hint.empty() ? status : WithHint(status, hint);
}

std::string GetReason(const absl::Status& status) {
  if (std::optional<std::string> reason = Payload(status, kReasonUrl)) {
    return *reason;
  }
  // What the other side said, as google.rpc.ErrorInfo.
  if (std::optional<rpc::ErrorReason> reason = rpc::GetReason(status)) {
    return reason->reason;
  }
  return absl::StatusCodeToString(status.code());
}

std::string GetHint(const absl::Status& status) {
  if (std::optional<std::string> hint = Payload(status, kHintUrl)) return *hint;
  const absl::string_view of_reason = HintOfReason(GetReason(status));
  if (!of_reason.empty()) return std::string(of_reason);
  if (IsHandshakeFailure(status)) {
    return "The two sides do not trust each other: --tls-ca has to be who "
           "signed the other side's certificate, and that one has to be good "
           "for the host that is dialled.";
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      // So a listener with TLS ends a caller whose certificate it does not
      // take.
      if (absl::StrContains(status.message(), "Socket closed")) {
        return "Somebody answered and closed the connection: does it want TLS, "
               "or a certificate that another --tls-ca signed?";
      }
      return "Is the coordinator running, and is --coordinator (or "
             "ATOLL_COORDINATOR) its address? `atoll settings` shows what is "
             "used.";
    case absl::StatusCode::kDeadlineExceeded:
      // A push or a pull that was given up (server/client).
      if (absl::StrContains(status.message(), "nothing has moved")) {
        return "Is that server running, and does it answer from here? `atoll "
               "run show RUN` lists the servers.";
      }
      return "Try again, or give more time with --timeout.";
    case absl::StatusCode::kUnauthenticated:
      return "Give --tls-cert, --tls-key and --tls-ca of a valid certificate.";
    case absl::StatusCode::kPermissionDenied:
      return "This certificate's role may not do that; use an operator's.";
    case absl::StatusCode::kUnimplemented:
      return "Is --coordinator (or ATOLL_COORDINATOR) the coordinator's "
             "address, and no server's? One older than this command has to be "
             "upgraded.";
    default:
      return "";
  }
}

std::optional<ExitCode> GetExitCode(const absl::Status& status) {
  std::optional<std::string> text = Payload(status, kExitCodeUrl);
  int code = 0;
  if (!text.has_value() || !absl::SimpleAtoi(*text, &code)) return std::nullopt;
  return static_cast<ExitCode>(code);
}

}  // namespace atl::cli
