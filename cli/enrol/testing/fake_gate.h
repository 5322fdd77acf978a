// A gate without a network, for tests: it signs what it is asked for.
//
// Thread-compatible.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/authority.h"
#include "cli/enrol/enrolment.h"

namespace atl::cli {

class FakeGate {
 public:
  FakeGate();

  absl::StatusOr<v1::GateResponse> Call(const GatePeer& peer,
                                        const v1::GateRequest& request);
  // The gate must outlive it.
  GateCall AsCall();

  // Of the root, for a join string.
  std::string pin() const;

  // Not OK: every call returns it. The others are parts of each answer.
  absl::Status error;
  std::string coordinator_address = "c.example.org:7400";
  absl::Time begin = absl::Now() - absl::Minutes(5);
  absl::Time end = absl::Now() + absl::Hours(24);

  // The calls that it got, in order.
  std::vector<v1::GateRequest> requests;
  std::vector<GatePeer> peers;

 private:
  const rpc::KeyAndCertificate authority_;
  std::string key_der_;
};

}  // namespace atl::cli
