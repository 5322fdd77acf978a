#include "cli/doctor/gate_judge.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/features/features.h"
#include "base/identity/identity.h"
#include "base/object_store/object_url.h"
#include "base/time/proto_time.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

constexpr char kAskOperator[] = "Ask the operator for a new join string.";
constexpr double kSlowBytesPerSecond = 125'000;  // 1 Mb/s.
constexpr int64_t kMeasuredBytesMin = 64 << 10;

// The gate has decided: the same request gets the same answer.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
         absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
}

}  // namespace

Check JudgeDns(absl::string_view host,
               const absl::StatusOr<std::vector<std::string>>& addresses) {
  if (!addresses.ok() || addresses->empty()) {
    return Failed("dns",
                  addresses.ok() ? absl::StrCat(host, " has no address")
                                 : std::string(addresses.status().message()),
                  absl::IsNotFound(addresses.status())
                      ? "Compare the host with the join string; ask the "
                        "operator if it is right."
                      : "Is this machine on the network? See "
                        "/etc/resolv.conf.");
  }
  const std::string& first = addresses->front();
  if (first == host) {
    return Passed("dns", absl::StrCat(host,
                                      " is an IP address, not a name: no name "
                                      "server is asked"));
  }
  const size_t more = addresses->size() - 1;
  return Passed(
      "dns",
      absl::StrCat(host, " is ", first,
                   more > 0 ? absl::StrCat(" and ", more, " more") : ""));
}

Check JudgeConnection(absl::string_view id, absl::string_view address,
                      const absl::StatusOr<absl::Duration>& connected) {
  if (connected.ok()) {
    return Passed(id, absl::StrFormat("%s answers in %.3g ms", address,
                                      absl::ToDoubleMilliseconds(*connected)));
  }
  return Failed(id, absl::StrCat(address, ": ", connected.status().message()),
                id == "proxy"
                    ? "Check the proxy's address, and that it permits CONNECT "
                      "to the gate."
                    : "A firewall may block this port; ask the operator "
                      "whether the gate runs, and give --proxy if you need "
                      "one.");
}

Check JudgeTls(const absl::Status& asked, absl::string_view pin) {
  if (asked.ok()) {
    return Passed("tls", absl::StrCat("TLS 1.3; the root has the pin ",
                                      pin.substr(0, 8), "..."));
  }
  const std::string reason = GetReason(asked);
  return Failed("tls", asked.message(),
                reason == "WRONG_PIN"
                    ? "Somebody else answers, or the string is old. Do not "
                      "join; ask the operator."
                : reason == "NOT_VALID_NOW"
                    ? "If this machine's clock is wrong, set it, for example "
                      "with `timedatectl set-ntp true`. If it is right, tell "
                      "the operator: the gate's certificate is not valid."
                : absl::IsUnauthenticated(asked)
                    ? "Tell the operator."
                    : "Another program than a gate may answer there, or a "
                      "firewall reads TLS: ask the operator.");
}

Check JudgeToken(const absl::StatusOr<v1::TokenState>& token, absl::Time now) {
  const absl::Status& status = token.status();
  if (GetReason(status) == "BUSY") {
    return Warn("token", "the gate is busy", "Try again in a minute.");
  }
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return Failed("token", status.message(),
                  "The gate cannot reach the coordinator: try again, then tell "
                  "the operator.");
  }
  if (GetReason(status) == "NO_ISLAND_CA") {
    return Failed("token", status.message(),
                  "Tell the operator. The string stays good.");
  }
  if (!status.ok()) return Failed("token", status.message(), kAskOperator);
  const absl::Time expire = FromProto(token->expire_time());
  if (token->uses_left() < 1) {
    return Failed("token", "the token has no use left", kAskOperator);
  }
  if (expire <= now) {
    return Failed("token", "the token has expired", kAskOperator);
  }
  const v1::RunState state = token->run().state();
  if (HasEnded(state)) {
    return Warn("token",
                absl::StrCat("the run is ", EnumName(state),
                             ": there is nothing left to train"),
                kAskOperator);
  }
  return Passed("token",
                absl::StrFormat("%d %s left, for %s; this check consumes none",
                                token->uses_left(),
                                token->uses_left() == 1 ? "use" : "uses",
                                FormatSpan(expire - now)));
}

Check JudgeCertificate(absl::Time end, absl::Time now) {
  if (now < end) {
    return Passed("certificate",
                  absl::StrCat("valid for ", FormatSpan(end - now)));
  }
  const std::string expired =
      end == absl::InfinitePast()
          ? "it cannot be read"
          : absl::StrCat("it expired ", FormatSpan(now - end), " ago");
  if (now - end < kRenewableAfterEnd) {
    return Warn("certificate", expired, "`atoll join` renews it.");
  }
  return Failed("certificate", expired, kAskOperator);
}

Check JudgeVersion(absl::string_view ours, absl::string_view theirs,
                   uint64_t missing_features) {
  if (missing_features != 0) {
    return Failed("version",
                  absl::StrCat("atoll ", ours, " lacks ",
                               DescribeFeatures(missing_features),
                               ", which the run needs"),
                  theirs.empty() ? std::string("Install a newer atoll.")
                                 : absl::StrCat("Install atoll ", theirs, "."));
  }
  if (!theirs.empty() && theirs != ours) {
    return Warn("version",
                absl::StrCat("atoll ", ours, ", the coordinator has ", theirs),
                "It works for this run; the same version is safer.");
  }
  return Passed("version", absl::StrCat("atoll ", ours));
}

Check JudgeData(const v1::DataSpec& data, const DataFacts& facts) {
  if (data.format() == v1::DATA_FORMAT_EXTERNAL) {
    return Passed("data", "the trainer brings its own");
  }
  constexpr char kGiveData[] =
      "Copy the data here and give --data PATH, or allow its folder once: "
      "`atoll data allow DIR`.";
  if (!facts.place.ok()) {
    return Failed("data", facts.place.status().message(), kGiveData);
  }
  if (!facts.place->path.empty()) {
    if (!facts.found.ok()) {
      return Failed("data", facts.found.status().message(), kGiveData);
    }
    std::string opens = absl::StrCat("an island ", facts.place->Describe());
    if (facts.found->is_compared) {
      absl::StrAppend(&opens, "; it is the run's data");
    } else if (!data.fingerprint().empty()) {
      absl::StrAppend(&opens, "; `atoll join` compares it with the run's");
    }
    return Passed("data", opens);
  }
  const std::string url = RedactUrl(data.url());
  if (facts.manifest.ok()) return Passed("data", absl::StrCat(url, " is read"));
  if (absl::IsPermissionDenied(facts.manifest) ||
      absl::IsUnauthenticated(facts.manifest)) {
    return Passed("data", absl::StrCat(url,
                                       " is private: an island reads it "
                                       "once it has joined"));
  }
  return Failed("data", facts.manifest.message(),
                absl::IsUnavailable(facts.manifest) ||
                        absl::IsCancelled(facts.manifest) ||
                        absl::IsDeadlineExceeded(facts.manifest)
                    ? "Check that this machine reaches the URL; give --proxy "
                      "if it needs one."
                : absl::StrContains(facts.manifest.message(),
                                    "--allow-data-host")
                    ? "Ask the operator where that host is, before you allow "
                      "it."
                    : "Tell the operator.");
}

Check JudgeServices(absl::string_view id, const std::vector<Dialled>& dialled) {
  for (const Dialled& service : dialled) {
    if (service.admits_islands == false) {
      return Failed(id,
                    absl::StrCat(service.address,
                                 " admits no island that a gate enrolled"),
                    "Do not join yet: a use of the string would be lost. Tell "
                    "the operator: island-ca.crt is missing in the --tls-dir "
                    "there.");
    }
    if (service.status.ok()) continue;
    return Failed(id,
                  absl::StrCat(service.address, ": ", service.status.message()),
                  "A firewall may block this port: the island dials it, too. "
                  "Ask the operator.");
  }
  if (dialled.size() == 1) {
    return Passed(id, absl::StrCat(dialled[0].address, " answers"));
  }
  return Passed(id, absl::StrCat("all ", dialled.size(), " answer"));
}

double ComputeRate(const rpc::LinkLoad& load) {
  const double seconds = absl::ToDoubleSeconds(load.span);
  return load.bytes < kMeasuredBytesMin || seconds <= 0
             ? 0
             : static_cast<double>(load.bytes) / seconds;
}

Check JudgeLink(absl::string_view id,
                const absl::StatusOr<rpc::LinkLoad>& load) {
  if (GetReason(load.status()) == "BUSY") {
    return Warn(id, "the gate is busy", "Try again in a minute.");
  }
  if (!load.ok()) {
    return Warn(id, absl::StrCat("not measured: ", load.status().message()),
                absl::IsInvalidArgument(load.status())
                    ? "An older gate cannot measure: ask the operator for a "
                      "newer one."
                : IsRefusal(load.status()) ? "Ask the operator."
                                           : "Try again.");
  }
  const double rate = ComputeRate(*load);
  if (rate == 0) {
    return Warn(id,
                absl::StrCat("only ", FormatBytes(load->bytes), " in ",
                             FormatSpan(rpc::kLinkLoadTime)),
                "Try again; is the link busy?");
  }
  const std::string what = absl::StrCat(
      FormatBandwidth(rate), id == "link_up" ? " to" : " from", " the gate");
  if (rate >= kSlowBytesPerSecond) return Passed(id, what);
  return Warn(id, what, "Exchanges will take long; see the forecast.");
}

}  // namespace atl::cli
