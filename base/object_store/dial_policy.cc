#include "base/object_store/dial_policy.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/host_port/host_port.h"

namespace atl {
namespace {

// A host of a URL or of --allow-data-host.
std::string NormalizeHost(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return ToComparedHost(host);
}

absl::Status Refused(const HttpUrl& url, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      url.authority(), " ", what,
      ", and a run may not choose what this machine dials there; if you know "
      "this host, allow it with --allow-data-host ",
      url.host));
}

}  // namespace

DialPolicy::DialPolicy(std::set<AddressBlock> blocks,
                       const std::vector<std::string>& hosts)
    : blocks_(std::move(blocks)) {
  blocks_.erase(AddressBlock::kPublic);
  blocks_.erase(AddressBlock::kUnusable);
  for (const std::string& host : hosts) hosts_.insert(NormalizeHost(host));
}

absl::Status DialPolicy::Check(const HttpUrl& url,
                               const sockaddr& address) const {
  return CheckBlock(url, FindAddressBlock(address));
}

absl::Status DialPolicy::CheckProxied(const HttpUrl& url) const {
  const std::optional<AddressBlock> block = FindAddressBlockOfHost(url.host);
  return CheckBlock(url, block.value_or(AddressBlock::kPublic));
}

absl::Status DialPolicy::CheckBlock(const HttpUrl& url,
                                    AddressBlock block) const {
  if (hosts_.contains(NormalizeHost(url.host)) || blocks_.contains(block)) {
    return absl::OkStatus();
  }
  if (block != AddressBlock::kPublic) {
    return Refused(url, absl::StrCat("is in ", AddressBlockName(block)));
  }
  if (!url.is_https) return Refused(url, "is plaintext (http://)");
  return absl::OkStatus();
}

}  // namespace atl
