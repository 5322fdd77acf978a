// Keeps the certificate of a command valid, if it is an enrolment's.
//
// Thread-compatible.

#pragma once

#include <optional>
#include <ostream>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/enrol/enrolment.h"

namespace atl::cli {

class CertificateKeeper {
 public:
  // `cert_path` is the setting tls_cert; it may be empty. `messages` must
  // outlive this.
  CertificateKeeper(std::string cert_path, GateCall call,
                    std::ostream& messages);

  // To be called before a client is made. The first call renews the
  // certificate if it lies in the directory of an enrolment and is due: one
  // call of the gate, which `stop` ends. From then on a thread renews it, for
  // commands that run for days.
  //
  // A gate that refuses or is away is an error only if the certificate has
  // expired, and else a log line. DATA_LOSS: the enrolment is damaged.
  absl::Status Prepare(absl::Time now, const std::stop_token& stop);

 private:
  absl::Status Renew(Enrolment& enrolment, absl::Time now,
                     const std::stop_token& stop) const;

  const std::string cert_path_;
  const GateCall call_;
  std::ostream& messages_;
  std::optional<Enrolment> enrolment_;  // Set by the first Prepare.
  std::optional<EnrolmentRenewer> renewer_;
};

}  // namespace atl::cli
