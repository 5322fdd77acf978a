// What a gate answers: strangers trade tokens for certificates, islands renew
// theirs. The coordinator decides; the gate checks keys and signs.
//
// Thread-safe.

#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "base/metrics/metrics.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "coordinator/gate/gate_files.h"
#include "coordinator/gate/gate_limits.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"

namespace atl::coordinator {

class Gate {
 public:
  // A call of EnrolmentService. Several threads use it.
  template <typename Request, typename Response>
  using Ask = std::function<absl::StatusOr<Response>(const Request&)>;

  struct Spec {
    Ask<v1::ConsumeTokenRequest, v1::ConsumeTokenResponse> consume_token;
    Ask<v1::CheckTokenRequest, v1::CheckTokenResponse> check_token;
    Ask<v1::RenewCertificateRequest, v1::RenewCertificateResponse>
        renew_certificate;
    GateFiles* files = nullptr;  // These three must outlive the gate.
    Metrics* metrics = nullptr;
    const Clock* clock = nullptr;    // The limits'.
    std::string island_coordinator;  // host:port that islands are told.
    std::string query_coordinator;   // The same for readers.
    absl::Duration lifetime = absl::Hours(24);  // A certificate's.
    GateRate all_calls = {100, 100};
    GateRate address_calls = {5, 20};
    // Renewals by valid certificates, apart from all others: no stranger may
    // keep an island from its next certificate.
    GateRate all_renewals = {100, 100};
    GateRate name_renewals = {0.2, 5};
    // A probe moves up to 64 MiB.
    GateRate all_probes = {1, 16};
    GateRate address_probes = {0.1, 8};
    // Probes of the link at a time; one of an address.
    size_t probe_count_max = 2;
  };

  // Who asks.
  struct Peer {
    std::string limit_key;  // As of net::BoundedListener.
    std::string chain_pem;  // Its certificates; empty: none.
  };

  struct Answered {
    std::string bytes;  // A serialised GateResponse.
    // The probe that the connection must carry now, and then hand to EndProbe;
    // LINK_DIRECTION_UNSPECIFIED: none.
    v1::LinkDirection probe = v1::LINK_DIRECTION_UNSPECIFIED;
  };

  explicit Gate(const Spec& spec);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Answers a serialised GateRequest. Waits for the coordinator. Refusals are
  // answers too:
  //   INVALID_ARGUMENT: the request is malformed.
  //   RESOURCE_EXHAUSTED, BUSY: too many requests, or probes; nothing was
  //     asked.
  //   UNAUTHENTICATED: to renew or to probe: see CheckEnrolledCertificate.
  //   Those of EnrolmentService that are about the request.
  //   UNAVAILABLE: any other error of the coordinator.
  //   INTERNAL: the coordinator grants what no gate signs.
  Answered Answer(const std::string& request, const Peer& peer);
  // Frees the place of a probe that Answer has begun for a peer with this key.
  void EndProbe(const std::string& limit_key);

 private:
  absl::StatusOr<v1::GateResponse> Decide(const v1::GateRequest& request,
                                          const Peer& peer);
  absl::StatusOr<v1::GateResponse> Enrol(const v1::TokenEnrolment& enrolment);
  absl::StatusOr<v1::GateResponse> Renew(const Peer& peer);
  absl::StatusOr<v1::GateResponse> Check(const v1::TokenCheck& check);
  // OK: the probe has a place.
  absl::StatusOr<v1::GateResponse> Probe(const v1::LinkProbe& probe,
                                         const Peer& peer);
  // The coordinator's address for `role`.
  const std::string& FindCoordinator(v1::EnrolledRole role) const;
  // Signs the grant for the key in `key_der`.
  template <typename Response>
  absl::StatusOr<v1::GateResponse> Sign(const Response& granted,
                                        const std::string& key_der);
  // BUSY: `limit` permits no call of `key` now.
  absl::Status TakeCall(CallLimit& limit, const std::string& key)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Spec spec_;
  prometheus::Family<prometheus::Counter>& requests_;
  Mutex mutex_;  // Guards the limits.
  // Only TakeCall touches them.
  CallLimit calls_;
  CallLimit renewals_;
  CallLimit probe_calls_;
  // The limit_keys of those who probe.
  absl::flat_hash_set<std::string> probing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
