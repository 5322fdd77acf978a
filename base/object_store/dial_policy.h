// Which hosts an HTTP client may dial for URLs that a peer named: a run's spec,
// a signed URL, a redirect.
//
// https:// to public addresses is allowed. Loopback, link-local and private
// addresses, and http://, are allowed only in blocks and to hosts that are
// named here. Pure. Thread-safe.

#pragma once

#include <sys/socket.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/host_port/address_block.h"
#include "base/object_store/object_url.h"

namespace atl {

class DialPolicy {
 public:
  // Only https:// to public addresses.
  DialPolicy() = default;
  // Also addresses in `blocks`, and all addresses of `hosts`, as a URL names
  // them; to these also http://. kPublic and kUnusable among `blocks` allow
  // nothing more.
  DialPolicy(std::set<AddressBlock> blocks,
             const std::vector<std::string>& hosts);

  // Whether a connection to `address`, for `url`, may be opened.
  // FAILED_PRECONDITION: not; the message says why, and what allows it.
  absl::Status Check(const HttpUrl& url, const sockaddr& address) const;
  // The same for a URL whose host a proxy resolves: only a literal address is
  // judged, and http:// needs the host's name here.
  absl::Status CheckProxied(const HttpUrl& url) const;

 private:
  absl::Status CheckBlock(const HttpUrl& url, AddressBlock block) const;

  std::set<AddressBlock> blocks_;
  std::set<std::string> hosts_;
};

}  // namespace atl
