#include "cli/output/error.h"

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"

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

// True if a TLS handshake failed: the sides do not trust each other.
bool IsHandshakeFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         (absl::StrContains(status.message(), "handshake failed") ||
          // base/rpc/server_check.h says why.
          absl::StrContains(status.message(), "the certificate of "));
}

// True if the other side is full for a moment: it is as good as away.
bool IsFull(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && IsAway(status);
}

// The hint for a reason that the other side gave. Empty: no special hint.
absl::string_view HintOfReason(absl::string_view reason) {
  if (reason == "NO_SUCH_RUN") {
    return "`atoll run list` lists the runs.";
  }
  if (reason == "NOT_STARTED") {
    return "`atoll run show RUN` says what the run waits for.";
  }
  if (reason == "STALE_ISLAND_EPOCH") {
    return "Two processes use one island id: give one of them another island "
           "id (--island-id, or island_id= in Python).";
  }
  if (reason == "NO_SUCH_ISLAND") {
    return "`atoll island list RUN` lists the islands.";
  }
  if (reason == "ISLAND_REMOVED") {
    return "Ask the run's operator for `atoll island readmit`, or join with "
           "another island id (--island-id, or island_id= in Python).";
  }
  if (reason == "NOT_YOURS") {
    return "A certificate is valid only for the id in its common name, "
           "atoll:ROLE:ID. Use that id, or another certificate.";
  }
  if (reason == "NOT_YOUR_RUN") {
    return "A run that is deleted and created again is another run. Ask its "
           "operator for a join string, or a certificate, for this run.";
  }
  if (reason == "WRONG_PIN") return "Ask the operator for a new join string.";
  if (reason == "NOT_FINITE") {
    return "The run's version is finite, so look at this island's data, "
           "trainer and device. The run continues without it.";
  }
  if (reason == "WRONG_TOKEN" || reason == "TOKEN_REVOKED" ||
      reason == "TOKEN_EXPIRED" || reason == "TOKEN_USED") {
    return "`atoll doctor -` checks a join string and uses nothing up.";
  }
  if (reason == "REVOKED") {
    return "Ask the run's operator. A revoked name is not given out again.";
  }
  if (reason == "TOKEN_OTHER_ROLE") {
    return "`atoll join` uses an island's string, `atoll enrol` a reader's.";
  }
  return "";
}

// True if the system denied access to a file, here or there.
bool IsOfFile(const absl::Status& status) {
  return absl::c_any_of(std::array{EACCES, EPERM, EROFS}, [&](int number) {
    return absl::StrContains(status.message(),
                             std::generic_category().message(number));
  });
}

}  // namespace

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
  if (std::optional<ErrorReason> reason = atl::GetReason(status)) {
    return reason->reason;
  }
  return absl::StatusCodeToString(status.code());
}

std::string GetHint(const absl::Status& status) {
  if (std::optional<std::string> hint = Payload(status, kHintUrl)) return *hint;
  const absl::string_view of_reason = HintOfReason(GetReason(status));
  if (!of_reason.empty()) return std::string(of_reason);
  if (IsHandshakeFailure(status)) {
    return "The TLS certificates do not match: --tls-ca must hold the CA that "
           "signed the other side's certificate, and that certificate must "
           "name the host that is dialled and have the role of the program "
           "there.";
  }
  if (IsFull(status)) {
    return absl::StrCat("Try again in ",
                        absl::FormatDuration(*GetRetryDelay(status)), ".");
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      // A TLS listener closes the connection like this if it rejects the
      // caller's certificate.
      if (absl::StrContains(status.message(), "Socket closed")) {
        return "The other side closed the connection. Does it require TLS, or "
               "a certificate from another CA? Check --tls-dir, or --tls-cert, "
               "--tls-key and --tls-ca. If a gate enrolled this machine, the "
               "operator may lack island-ca.crt there: `atoll doctor` says so.";
      }
      return "Is the coordinator running, and is --coordinator (or "
             "ATOLL_COORDINATOR) its address? `atoll settings` shows the "
             "address in use.";
    case absl::StatusCode::kDeadlineExceeded:
      // A push or pull that timed out (server/client).
      if (absl::StrContains(status.message(), "nothing has moved")) {
        return "Is that server running and reachable from here? `atoll run "
               "show "
               "RUN` lists the servers.";
      }
      return "Try again, or raise --timeout.";
    case absl::StatusCode::kUnauthenticated:
      return "Give a valid certificate with --tls-dir, or with --tls-cert, "
             "--tls-key and --tls-ca.";
    case absl::StatusCode::kPermissionDenied:
      if (IsOfFile(status)) return "";
      return "The role of this certificate does not permit this; use an "
             "operator's certificate.";
    case absl::StatusCode::kUnimplemented:
      return "Is --coordinator (or ATOLL_COORDINATOR) the address of the "
             "coordinator, not of a server? A coordinator older than this "
             "command must be upgraded.";
    default:
      return "";
  }
}

ExitCode ToExitCode(const absl::Status& status) {
  const std::optional<std::string> text = Payload(status, kExitCodeUrl);
  int code = 0;
  if (text.has_value() && absl::SimpleAtoi(*text, &code)) {
    return static_cast<ExitCode>(code);
  }
  if (IsHandshakeFailure(status)) return ExitCode::kForbidden;
  if (IsFull(status)) return ExitCode::kConnection;
  return CodeToExitCode(status.code());
}

}  // namespace atl::cli
