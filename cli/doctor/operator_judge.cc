#include "cli/doctor/operator_judge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/time/proto_time.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kWeek = absl::Hours(24 * 7);
constexpr absl::Duration kMirrorWaitMax = absl::Hours(1);
constexpr double kFreeShareWarn = 0.1;
constexpr double kFreeShareFail = 0.02;
// Fault.code of a peer that knows another log.
constexpr char kOtherCluster[] = "OTHER_CLUSTER";
// A sentence names so many; the others are counted.
constexpr size_t kNamedMax = 3;

// Faults and warnings, the worst first.
class Findings {
 public:
  void Fail(std::string text) { failed_.push_back(std::move(text)); }
  void Warn(std::string text) { warned_.push_back(std::move(text)); }
  void Add(bool is_failure, std::string text) {
    (is_failure ? failed_ : warned_).push_back(std::move(text));
  }
  // The check, or one that passed with `passed`.
  Check ToCheck(absl::string_view id, absl::string_view passed,
                absl::string_view action) const {
    if (!failed_.empty()) return Failed(id, Name(failed_), action);
    if (!warned_.empty()) return cli::Warn(id, Name(warned_), action);
    return Passed(id, passed);
  }

 private:
  static std::string Name(const std::vector<std::string>& all) {
    const size_t count = std::min(kNamedMax, all.size());
    std::string text = absl::StrJoin(all.begin(), all.begin() + count, "; ");
    if (all.size() > count) {
      absl::StrAppend(&text, "; and ", all.size() - count, " more");
    }
    return text;
  }

  std::vector<std::string> failed_;
  std::vector<std::string> warned_;
};

// "server s0 belongs to cluster a, and the coordinator is cluster b".
std::string DescribeRefusal(const v1::RefusedPeer& peer) {
  const std::string who = absl::StrCat(
      peer.role(), " ", peer.name(),
      peer.run_id().empty() ? "" : absl::StrCat(" of run ", peer.run_id()));
  const v1::Fault& fault = peer.fault();
  if (fault.code() == kOtherCluster) {
    return absl::StrCat(who, " belongs to ", fault.found(),
                        ", and the coordinator is ", fault.expected());
  }
  return absl::StrCat(who, ": ", fault.code(), ": expected ", fault.expected(),
                      ", found ", fault.found());
}

}  // namespace

Check JudgePeers(const v1::GetClusterResponse& cluster) {
  Findings findings;
  bool other_cluster = false;
  for (const v1::RefusedPeer& peer : cluster.refused_peers()) {
    other_cluster |= peer.fault().code() == kOtherCluster;
    findings.Fail(DescribeRefusal(peer));
  }
  return findings.ToCheck(
      "peers", "the coordinator refuses none",
      other_cluster
          ? "If all peers are refused, the coordinator's directory is wrong: "
            "start it with the right --data-dir. If one peer is refused, that "
            "peer has another cluster's --data-dir, or a wrong --coordinator. "
            "Refused peers wait and keep their files."
          : "Start each server with its own --data-dir, and one process for "
            "each --server-id.");
}

Check JudgeSecret(const v1::GetClusterResponse& cluster) {
  if (!cluster.has_mirror()) {
    return Passed("log_secret", "not needed: the coordinator has no mirror");
  }
  if (cluster.log_secret_exported()) {
    return Passed("log_secret", "was written to a file or printed");
  }
  return Warn("log_secret",
              "if the coordinator's disk is lost, so is its log's secret",
              "On its machine: `atoll-coordinator secret --data-dir DIR "
              "--output FILE`. Keep FILE where the CA is.");
}

Check JudgeServers(const v1::GetClusterResponse& cluster,
                   const std::vector<ServiceFacts>& servers) {
  const bool refused = std::any_of(
      cluster.refused_peers().begin(), cluster.refused_peers().end(),
      [](const v1::RefusedPeer& peer) { return peer.role() == "server"; });
  if (servers.empty() && refused) {
    return NotChecked("servers", "the coordinator refuses them");
  }
  return JudgeReached("servers", servers);
}

Check JudgeReached(absl::string_view id,
                   const std::vector<ServiceFacts>& services) {
  if (services.empty()) {
    return id == "gates"
               ? Warn(id, "no gate has announced itself",
                      "Start atoll-gate if volunteers join by a string.")
               : Warn(id, "no server has registered", "Start atoll-server.");
  }
  Findings findings;
  for (const ServiceFacts& service : services) {
    if (!service.reached.ok()) {
      findings.Fail(absl::StrCat(service.name, " at ", service.address, ": ",
                                 service.reached.message()));
    } else if (!service.alive) {
      findings.Fail(absl::StrCat(service.name, " at ", service.address,
                                 " answers, but does not report"));
    }
  }
  return findings.ToCheck(
      id,
      services.size() == 1 ? absl::StrCat(services[0].address, " answers")
                           : absl::StrCat("all ", services.size(), " answer"),
      "Start the stopped one; open its port for this machine and for islands.");
}

Check JudgeIslandCa(const std::vector<ServiceFacts>& listeners, bool has_gate) {
  Findings findings;
  size_t known = 0;
  for (const ServiceFacts& listener : listeners) {
    if (!listener.admits_islands.has_value()) continue;
    ++known;
    if (*listener.admits_islands) continue;
    findings.Add(has_gate, absl::StrCat(listener.name, " at ", listener.address,
                                        " admits no enrolled island"));
  }
  if (known == 0) return NotChecked("island_ca", "no service uses TLS");
  return findings.ToCheck(
      "island_ca", absl::StrCat(known, " admit enrolled islands"),
      "For volunteers give it --tls-dir with a directory of `atoll ca issue`, "
      "which has island-ca.crt. Before, a join string cannot be made, or is "
      "wasted.");
}

Check JudgeCertificates(const std::vector<ServiceFacts>& services,
                        absl::Time now) {
  Findings findings;
  absl::Time first_end = absl::InfiniteFuture();
  for (const ServiceFacts& service : services) {
    if (!service.certificate_end.has_value()) continue;
    const absl::Time end = *service.certificate_end;
    first_end = std::min(first_end, end);
    const absl::Duration life =
        end - service.certificate_begin.value_or(absl::InfinitePast());
    if (end <= now) {
      findings.Fail(absl::StrCat(service.name, "'s expired ",
                                 FormatSpan(now - end), " ago"));
    } else if (end - now < kWeek ||
               (life != absl::InfiniteDuration() && end - now < life / 3)) {
      findings.Warn(
          absl::StrCat(service.name, "'s ends in ", FormatSpan(end - now)));
    }
  }
  if (first_end == absl::InfiniteFuture()) {
    return NotChecked("certificates", "no service shows one");
  }
  return findings.ToCheck(
      "certificates",
      absl::StrCat("the first ends in ", FormatSpan(first_end - now)),
      "`atoll ca renew DIR` renews them; programs read them again.");
}

Check JudgeClocks(const std::vector<ServiceFacts>& services) {
  Findings findings;
  size_t known = 0;
  for (const ServiceFacts& service : services) {
    if (!service.clock_ahead.has_value()) continue;
    ++known;
    const absl::Duration apart = absl::AbsDuration(*service.clock_ahead);
    if (apart <= kClockWarn) continue;
    const bool is_behind = *service.clock_ahead < absl::ZeroDuration();
    findings.Add(apart > kClockFail,
                 absl::StrCat(service.name, " is ", FormatSpan(apart),
                              is_behind ? " behind" : " ahead"));
  }
  if (known == 0) return NotChecked("clocks", "no service says its time");
  return findings.ToCheck(
      "clocks", absl::StrCat(known, " within 30 s of this machine's"),
      "Set the clocks, for example with `timedatectl set-ntp true`.");
}

Check JudgeVersions(const std::vector<ServiceFacts>& services,
                    absl::string_view ours) {
  Findings findings;
  for (const ServiceFacts& service : services) {
    if (service.program_version.empty() || service.program_version == ours) {
      continue;
    }
    findings.Warn(
        absl::StrCat(service.name, " has ", service.program_version));
  }
  return findings.ToCheck("version", absl::StrCat("all have ", ours),
                          "Finish the upgrade: one version everywhere.");
}

Check JudgeDisks(const std::vector<ServiceFacts>& servers) {
  if (servers.empty()) return NotChecked("disks", "there is no server");
  Findings findings;
  for (const ServiceFacts& server : servers) {
    if (!server.health.has_value() || server.health->disk_total_bytes() <= 0) {
      findings.Warn(absl::StrCat(server.name, " does not say"));
      continue;
    }
    const v1::ServerHealth& health = *server.health;
    const double share = static_cast<double>(health.disk_free_bytes()) /
                         static_cast<double>(health.disk_total_bytes());
    if (share < kFreeShareWarn) {
      findings.Add(
          share < kFreeShareFail,
          absl::StrFormat("%s has %s free, %.1f %%", server.name,
                          FormatBytes(health.disk_free_bytes()), 100 * share));
    }
    const absl::Duration sync = FromProto(health.sync_duration());
    if (sync > kSlowSync) {
      findings.Warn(absl::StrFormat("%s takes %.3g ms to sync", server.name,
                                    absl::ToDoubleMilliseconds(sync)));
    }
  }
  return findings.ToCheck(
      "disks", absl::StrCat(servers.size(), " with more than 10 % free"),
      "If there is little space, free some or enlarge the disk of --data-dir; "
      "`atoll run delete` removes ended runs. A server that has just started "
      "does not say yet: check again.");
}

Check JudgeRuns(const std::vector<v1::GetRunStateResponse>& runs,
                int64_t unseen_count, absl::Time now) {
  Findings findings;
  if (unseen_count > 0) {
    findings.Warn(absl::StrCat(unseen_count, " runs were not looked at"));
  }
  for (const v1::GetRunStateResponse& state : runs) {
    const v1::Run& run = state.run();
    if (HasEnded(run.state())) continue;
    const std::string name = absl::StrCat("run ", run.run_id());
    if (run.has_fault()) {
      findings.Fail(absl::StrCat(
          name, ": ", run.fault().code(),
          run.fault().next_command().empty() ? "" : ": ",
          run.fault().next_command()));
    } else if (run.state() != v1::RUN_STATE_ACTIVE) {
      findings.Warn(absl::StrCat(name, " is ", EnumName(run.state()),
                                 run.state_reason().empty() ? "" : ": ",
                                 run.state_reason()));
    }
    const v1::RunMirror& mirror = state.mirror();
    if (!mirror.error().empty()) {
      findings.Warn(absl::StrCat(name, ", mirror: ", mirror.error()));
    } else if (mirror.has_wait_start_time() &&
               now - FromProto(mirror.wait_start_time()) > kMirrorWaitMax) {
      findings.Warn(absl::StrCat(
          name, ", mirror: a checkpoint has waited for ",
          FormatSpan(now - FromProto(mirror.wait_start_time())),
          ", and the newest there lacks ", mirror.lag(), " commits"));
    }
    for (const v1::ServerState& server : state.servers()) {
      const std::string shard =
          absl::StrCat(name, ", server ", server.placement().server_id(), ": ");
      if (!server.fault().empty()) {
        findings.Fail(shard + server.fault());
      } else if (!server.blocked_reason().empty()) {
        findings.Warn(shard + server.blocked_reason());
      }
    }
  }
  return findings.ToCheck("runs",
                          absl::StrCat(runs.size(), ", none is blocked"),
                          "`atoll run show RUN` says more.");
}

}  // namespace atl::cli
