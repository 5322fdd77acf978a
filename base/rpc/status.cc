#include "base/rpc/status.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/host_port/proxy.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/valid_utf8.h"
#include "google/rpc/status.pb.h"

namespace atl::rpc {
namespace {

constexpr absl::string_view kTypeUrlPrefix = "type.googleapis.com/";
// After which a call is repeated that gRPC had no room for.
constexpr absl::Duration kFullWait = absl::Seconds(1);

// Truncates to kStatusMessageBytesMax, not inside a UTF-8 character.
std::string CutMessage(absl::string_view message) {
  if (message.size() <= kStatusMessageBytesMax) return std::string(message);
  return std::string(CutUtf8(message, kStatusMessageBytesMax - 3)) + "...";
}

// Before the message of a failed check of the peer's certificate
// (base/rpc/channel.cc), gRPC puts what was tried, and this.
constexpr absl::string_view kVerifierPrefix =
    "Custom verification check failed with error: UNAUTHENTICATED: ";

// After the address of a proxy ("ipv4:10.0.0.1:3128") that refuses, gRPC puts
// this and the code.
constexpr absl::string_view kProxyWords =
    ": HTTP proxy returned response code ";

// "the proxy HOST:PORT answered CODE ...", if a proxy refused; else empty.
std::string FindRefusal(absl::string_view message) {
  const size_t at = message.find(kProxyWords);
  if (at == absl::string_view::npos) return "";
  absl::string_view proxy = message.substr(0, at);
  proxy.remove_prefix(proxy.rfind(' ') + 1);
  if (!absl::ConsumePrefix(&proxy, "ipv4:")) {
    absl::ConsumePrefix(&proxy, "ipv6:");
  }
  int code = 0;
  if (!absl::SimpleAtoi(message.substr(at + kProxyWords.size(), 3), &code)) {
    return "";
  }
  return DescribeRefusal(proxy, code, "");
}

// The message without gRPC's words around the result of our own check, or of a
// proxy's answer.
std::string Essence(absl::string_view message) {
  std::string refusal = FindRefusal(message);
  if (!refusal.empty()) return refusal;
  const size_t at = message.find(kVerifierPrefix);
  return std::string(at == absl::string_view::npos
                         ? message
                         : message.substr(at + kVerifierPrefix.size()));
}

// True if gRPC itself refuses, or a server's guard of calls, and waiting helps:
// it has no memory or threads for a call, or the caller has too many open. Our
// handlers give details. gRPC's other limits stay, whenever one calls.
bool IsFullForNow(const absl::Status& status) {
  return absl::IsResourceExhausted(status) &&
         !absl::StrContains(status.message(), "larger than max") &&
         !absl::StrContains(status.message(), "exceeds limit");
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = CutMessage(ToValidUtf8(status.message()));
  std::vector<std::pair<std::string, std::string>> payloads;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (absl::StartsWith(url, kTypeUrlPrefix)) {
      payloads.emplace_back(std::string(url), std::string(payload));
    }
  });
  std::sort(payloads.begin(), payloads.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size()
               ? a.second.size() < b.second.size()
               : a.first < b.first;
  });
  google::rpc::Status details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(message);
  size_t bytes = 0;
  for (auto& [url, payload] : payloads) {
    bytes += url.size() + payload.size();
    if (bytes > kStatusDetailsBytesMax) break;
    auto* detail = details.add_details();
    detail->set_type_url(std::move(url));
    detail->set_value(std::move(payload));
  }
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()), message,
      details.details_size() > 0 ? details.SerializeAsString() : "");
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code >= 1 && code <= 16;
  absl::Status result(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      Essence(status.error_message()));
  if (status.error_details().empty()) {
    return IsFullForNow(result) ? WithRetryDelay(result, kFullWait) : result;
  }
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) {
      result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return result;
}

}  // namespace atl::rpc
