#include "cli/enrol/certificate_keeper.h"

#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/io/unique_fd.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// Most commands end before it, and so ask the gate at most once.
constexpr absl::Duration kRenewerDelay = absl::Seconds(5);

}  // namespace

CertificateKeeper::CertificateKeeper(std::string cert_path, GateCall call,
                                     std::ostream& messages)
    : cert_path_(std::move(cert_path)),
      call_(std::move(call)),
      messages_(messages) {}

absl::Status CertificateKeeper::Prepare(absl::Time now,
                                        const std::stop_token& stop) {
  const std::filesystem::path path = cert_path_;
  if (enrolment_.has_value() || path.filename() != kTlsCertFile) {
    return absl::OkStatus();
  }
  const std::string directory =
      path.has_parent_path() ? path.parent_path().string() : ".";
  absl::StatusOr<Enrolment> found = Enrolment::Read(directory);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  RETURN_IF_ERROR(found.status());
  RETURN_IF_ERROR(Renew(*found, now, stop));
  enrolment_.emplace(*std::move(found));
  renewer_.emplace(*enrolment_, call_, kRenewerDelay);
  return absl::OkStatus();
}

absl::Status CertificateKeeper::Renew(Enrolment& enrolment, absl::Time now,
                                      const std::stop_token& stop) const {
  if (now < enrolment.RenewalTime()) return absl::OkStatus();
  messages_ << absl::StrCat("renewing the certificate at the gate ",
                            enrolment.record().gate_address,
                            ", for at most 10s\n")
            << std::flush;
  ASSIGN_OR_RETURN(const UniqueFd waker, MakeWaker());
  const std::stop_callback end_call(stop, [&] { SetWaker(waker.get()); });
  const absl::Status renewed = enrolment.RenewIfDue(call_, now, waker.get());
  if (renewed.ok()) return renewed;
  if (!enrolment.IsValid(now)) {
    return absl::IsDataLoss(renewed)
               ? renewed
               : WithContext(renewed, "the certificate has expired");
  }
  LOG(WARNING) << "the certificate is not renewed yet: " << renewed.message();
  return absl::OkStatus();
}

}  // namespace atl::cli
