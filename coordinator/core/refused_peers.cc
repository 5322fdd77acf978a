#include "coordinator/core/refused_peers.h"

#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr char kServer[] = "server";

}  // namespace

bool RefusedPeers::MakeRoom(const std::string& role, absl::Time now) {
  const size_t most = role == kServer ? kServersMax : kIslandsMax;
  size_t count = 0;
  auto at = peers_.lower_bound({role, ""});
  while (at != peers_.end() && at->first.first == role) {
    const bool is_old = at->second.time + kListedFor <= now;
    count += is_old ? 0 : 1;
    at = is_old ? peers_.erase(at) : std::next(at);
  }
  return count < most;
}

std::string RefusedPeers::Note(const PeerName& peer, const v1::Fault& fault,
                               absl::Time now) {
  if (!CheckId("name", peer.name).ok()) return "";
  if (!peer.run_id.empty() && !CheckId("run_id", peer.run_id).ok()) return "";
  const std::pair<std::string, std::string> key(peer.role, peer.name);
  if (!peers_.contains(key) && !MakeRoom(peer.role, now)) return "";
  Entry& entry = peers_[key];
  entry.run_id = peer.run_id;
  entry.fault = fault;
  // It may quote the caller.
  entry.fault.set_found(absl::Utf8SafeCEscape(fault.found()));
  entry.run_fault = entry.fault;
  entry.run_fault.set_found(absl::StrCat(entry.fault.found(), ", at ",
                                         peer.role, " ", peer.name));
  entry.time = now;
  if (now < entry.log_time) return "";
  entry.log_time = now + kLogInterval;
  return absl::StrCat(
      "refused ", peer.role, " ", peer.name,
      peer.run_id.empty() ? "" : absl::StrCat(" of run ", peer.run_id), ": ",
      fault.code(), ": expected ", fault.expected(), ", found ",
      entry.fault.found());
}

void RefusedPeers::Forget(const std::string& role, const std::string& name) {
  peers_.erase({role, name});
}

const v1::Fault* RefusedPeers::FindServer(
    const std::function<bool(const std::string& server_id)>& counts) const {
  for (auto at = peers_.lower_bound({kServer, ""});
       at != peers_.end() && at->first.first == kServer; ++at) {
    if (counts(at->first.second)) return &at->second.run_fault;
  }
  return nullptr;
}

void RefusedPeers::List(absl::Time now,
                        v1::GetClusterResponse& response) const {
  for (const auto& [key, entry] : peers_) {
    if (entry.time + kListedFor <= now) continue;
    if (static_cast<size_t>(response.refused_peers_size()) >= kListedMax) {
      return;
    }
    v1::RefusedPeer& listed = *response.add_refused_peers();
    listed.set_role(key.first);
    listed.set_name(key.second);
    listed.set_run_id(entry.run_id);
    *listed.mutable_fault() = entry.fault;
    *listed.mutable_time() = ToProto(entry.time);
  }
}

}  // namespace atl::coordinator
