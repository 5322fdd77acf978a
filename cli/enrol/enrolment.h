// A machine's enrolment in one run, as an island or as a reader, kept in a
// directory:
//   tls.key         the private key, made here; it never leaves the machine
//   tls.crt         the newest certificate
//   ca.crt          the root that the join string pins
//   data.token      opens the run's data at `atoll data serve`
//   profile.toml    a reader's: settings of the `atoll` command
//   enrolment.json  where to go, and as whom; written last
//   lock            held while the others are written
// The join string's secret is not kept.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "base/identity/join_string.h"
#include "base/io/unique_fd.h"
#include "base/rpc/certificates/tls.h"
#include "base/sync/mutex.h"

namespace atl::cli {

// Where a gate is, and who asks it.
struct GatePeer {
  std::string address;  // host:port
  std::string pin;      // As in the join string.
  std::string key_pem;  // With `cert_pem`: our certificate; empty: none.
  std::string cert_pem;
  int stop_fd = -1;  // A waker (base/io/unique_fd.h) that ends the call.
};

// Asks a gate once. Errors: the gate's, or of the connection.
using GateCall = std::function<absl::StatusOr<v1::GateResponse>(
    const GatePeer& peer, const v1::GateRequest& request)>;

// The content of enrolment.json.
struct EnrolmentRecord {
  std::string gate_address;
  std::string pin;
  std::string run_id;
  std::string token_id;
  v1::EnrolledRole role = v1::ENROLLED_ROLE_ISLAND;
  std::string name;  // The island's or reader's.
  std::string coordinator_address;
  std::vector<std::string> server_addresses;
};

class Enrolment {
 public:
  // Enrols with a join string, or opens what an earlier call with the same
  // string has left under `parent`. A call that was cut off is repeated with
  // the same key, so it costs no second use of the token. `name` empty: the
  // operator's choice. Renews a certificate that is due.
  // INVALID_ARGUMENT (a usage error): the earlier call had another role or
  // name.
  static absl::StatusOr<Enrolment> Enrol(const std::string& parent,
                                         const JoinString& join,
                                         v1::EnrolledRole role,
                                         const std::string& name,
                                         const GateCall& call, absl::Time now);

  // The island's enrolment in `run_id` that an earlier Enrol has left under
  // `parent`. NOT_FOUND: there is none. FAILED_PRECONDITION: there are several.
  static absl::StatusOr<Enrolment> Open(const std::string& parent,
                                        const std::string& run_id);

  // The enrolment in `directory`. NOT_FOUND: there is none. DATA_LOSS:
  // enrolment.json is damaged.
  static absl::StatusOr<Enrolment> Read(const std::string& directory);

  const EnrolmentRecord& record() const { return record_; }
  const std::string& directory() const { return directory_; }
  rpc::TlsFiles tls_files() const;
  std::string profile_path() const;  // Only readers have the file.

  // When the certificate should be renewed: two thirds of its life.
  // InfinitePast if it cannot be read.
  absl::Time RenewalTime() const;
  // When the certificate ends; InfinitePast if it cannot be read.
  absl::Time EndTime() const;
  // The newest data token, read at each call; empty if there is none.
  std::string ReadDataToken() const;
  // True if the certificate is valid at `now`.
  bool IsValid(absl::Time now) const;
  // Gets the next certificate. The files stay as they are on an error.
  // DATA_LOSS, ENROLMENT_DAMAGED: tls.crt or tls.key is of no use.
  // `stop_fd`: a waker that ends the call; -1: none.
  absl::Status Renew(const GateCall& call, int stop_fd = -1);
  // The same, unless RenewalTime() is after `now`: another program may have
  // been faster.
  absl::Status RenewIfDue(const GateCall& call, absl::Time now,
                          int stop_fd = -1);

 private:
  Enrolment(std::string directory, EnrolmentRecord record)
      : directory_(std::move(directory)), record_(std::move(record)) {}

  // Renew, by the holder of the directory's lock.
  absl::Status RenewLocked(const GateCall& call, int stop_fd = -1);
  absl::Status Write(const v1::Enrolled& enrolled);

  std::string directory_;
  EnrolmentRecord record_;
};

// Renews an enrolment's certificate while it lives, with a thread. It looks at
// the clock at least every ten seconds, so a machine that slept notices soon.
// Thread-safe.
class EnrolmentRenewer {
 public:
  // `enrolment` must outlive it. The first look comes after `delay`.
  EnrolmentRenewer(Enrolment& enrolment, GateCall call,
                   absl::Duration delay = absl::ZeroDuration());
  ~EnrolmentRenewer();

  // Waits until the certificate is valid, at most `patience`. Errors as the
  // last attempt to renew; after an attempt, if none can succeed.
  // CANCELLED: `stop` was requested.
  absl::Status WaitUntilValid(absl::Duration patience, std::stop_token stop);

 private:
  void Run();

  Enrolment& enrolment_;
  const GateCall call_;
  const absl::Duration delay_;
  const absl::StatusOr<UniqueFd> waker_ = MakeWaker();  // Ends a call.
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t attempt_count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);  // The newest attempt's.
  std::thread thread_;
};

}  // namespace atl::cli
