#include "cli/enrol/enrolment.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port/host_port.h"
#include "base/identity/identity.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/rpc/certificates/public_key.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/output/error.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

// The coordinator lets certificates begin so far back.
constexpr absl::Duration kBack = absl::Minutes(5);
constexpr absl::Duration kLookPeriod = absl::Seconds(10);
constexpr absl::Duration kRetryMax = absl::Minutes(1);
constexpr char kRecordFile[] = "enrolment.json";
constexpr char kDataTokenFile[] = "data.token";
constexpr char kProfileFile[] = "profile.toml";

std::string ToText(v1::EnrolledRole role) {
  return role == v1::ENROLLED_ROLE_READER ? "reader" : "island";
}

// UNSPECIFIED: it is damaged. Records of older versions have no role.
v1::EnrolledRole ToRole(const std::string& text) {
  if (text == "reader") return v1::ENROLLED_ROLE_READER;
  return text.empty() || text == "island" ? v1::ENROLLED_ROLE_ISLAND
                                          : v1::ENROLLED_ROLE_UNSPECIFIED;
}

// Paths in a profile are relative to it. Requires: `coordinator` is HOST:PORT.
std::string MakeProfile(const std::string& coordinator) {
  return absl::StrCat("# For ATOLL_PROFILE.\n", "coordinator = \"", coordinator,
                      "\"\ntls_cert = \"", kTlsCertFile, "\"\ntls_key = \"",
                      kTlsKeyFile, "\"\ntls_ca = \"", kCaCertFile, "\"\n");
}

nlohmann::json ToJson(const EnrolmentRecord& record) {
  return {{"gate", record.gate_address},
          {"pin", record.pin},
          {"run_id", record.run_id},
          {"token_id", record.token_id},
          {"role", ToText(record.role)},
          {"name", record.name},
          {"coordinator", record.coordinator_address},
          {"servers", record.server_addresses}};
}

// The key of an earlier call that was cut off, else a new one. It is on the
// disk before the gate hears of it.
absl::StatusOr<std::string> MakeKey(const std::string& directory) {
  absl::StatusOr<std::string> key = ReadFileIn(directory, kTlsKeyFile);
  if (!absl::IsNotFound(key.status())) return key;
  ASSIGN_OR_RETURN(const rpc::KeyAndRequest made, rpc::MakeKeyAndRequest());
  RETURN_IF_ERROR(WriteFileIn(directory, kTlsKeyFile, made.key_pem));
  return made.key_pem;
}

// Trusts the gate with nothing but the certificate: of the root it takes the
// one with the pin, and the name must be an id.
absl::StatusOr<v1::Enrolled> TakeEnrolled(
    absl::StatusOr<v1::GateResponse> response, const std::string& pin,
    const std::string& key_pem) {
  RETURN_IF_ERROR(response.status());
  if (!response->has_enrolled()) {
    return absl::InternalError("the gate's answer has no certificate");
  }
  v1::Enrolled enrolled = std::move(*response->mutable_enrolled());
  const absl::StatusOr<std::string> root =
      rpc::FindPinned(enrolled.root_pem(), pin);
  if (!root.ok()) {
    return absl::UnauthenticatedError(
        "the gate's answer has another root than the join string pins: tell "
        "the operator");
  }
  enrolled.set_root_pem(*root);
  RETURN_IF_ERROR(ValidateId("the gate's name", enrolled.identity().name()));
  RETURN_IF_ERROR(ParseHostPort(enrolled.coordinator_address()).status());
  RETURN_IF_ERROR(rpc::CheckKey(enrolled.certificate_chain_pem(), key_pem));
  return enrolled;
}

// Held while an enrolment's files are written; two programs may share them.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& directory) {
  const std::string path = FileIn(directory, "lock");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                     0600));
  if (!fd.valid()) return ErrnoToStatus(errno, path);
  // A gate answers within seconds, so the other one does not hold it for long.
  if (::flock(fd.get(), LOCK_EX) != 0) return ErrnoToStatus(errno, path);
  return fd;
}

absl::StatusOr<rpc::CertificateFacts> ReadCertificate(
    const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string pem, ReadFileIn(directory, kTlsCertFile));
  return rpc::ReadFacts(pem);
}

absl::Status Damaged(const std::string& directory, absl::string_view file) {
  return WithReason(
      absl::DataLossError(absl::StrCat(
          FileIn(directory, file),
          " is missing, damaged or not readable: move the directory away and "
          "join with a new string")),
      "ENROLMENT_DAMAGED");
}

// True for an error that no later attempt will change.
bool IsFinal(const absl::Status& status) {
  const std::string reason = GetReason(status);
  return reason == "ENROLMENT_DAMAGED" || reason == "REVOKED" ||
         reason == "NOT_ENROLLED" || reason == "TOO_OLD" ||
         reason == "WRONG_PIN";
}

}  // namespace

absl::StatusOr<Enrolment> Enrolment::Read(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileIn(directory, kRecordFile));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  EnrolmentRecord record;
  const auto get = [&json](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
  };
  if (json.is_object()) {
    record = {get("gate"),       get("pin"),          get("run_id"),
              get("token_id"),   ToRole(get("role")), get("name"),
              get("coordinator")};
    for (const nlohmann::json& server :
         json.value("servers", nlohmann::json())) {
      if (server.is_string()) record.server_addresses.push_back(server);
    }
  }
  if (record.name.empty() || record.coordinator_address.empty() ||
      record.role == v1::ENROLLED_ROLE_UNSPECIFIED) {
    return Damaged(directory, kRecordFile);
  }
  return Enrolment(directory, std::move(record));
}

absl::StatusOr<Enrolment> Enrolment::Enrol(
    const std::string& parent, const JoinString& join, v1::EnrolledRole role,
    const std::string& name, const GateCall& call, absl::Time now) {
  const std::string directory =
      absl::StrCat(parent, "/", join.run_id, ".", join.token_id);
  RETURN_IF_ERROR(MakePrivateDirectory(directory));
  ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(directory));
  absl::StatusOr<Enrolment> found = Read(directory);
  if (!absl::IsNotFound(found.status())) {
    RETURN_IF_ERROR(found.status());
    if (role != found->record_.role) {
      return UsageError(
          absl::StrCat("with this string the machine is enrolled as the ",
                       ToText(found->record_.role), " ", found->record_.name),
          role == v1::ENROLLED_ROLE_READER
              ? "`atoll join` uses an island's string."
              : "`atoll enrol` uses a reader's string.");
    }
    if (!name.empty() && name != found->record_.name &&
        ToEnrolledName(name) != found->record_.name) {
      return UsageError(absl::StrCat("this machine is enrolled as ",
                                     found->record_.name, ", not as ", name),
                        "Leave out --island-id.");
    }
    if (now >= found->RenewalTime()) {
      const absl::Status renewed = found->RenewLocked(call);
      if (!renewed.ok() && (IsFinal(renewed) || !found->IsValid(now))) {
        return renewed;
      }
    }
    return found;
  }
  ASSIGN_OR_RETURN(const std::string key, MakeKey(directory));
  v1::GateRequest request;
  v1::TokenEnrolment& enrol = *request.mutable_enrol();
  enrol.set_token_id(join.token_id);
  enrol.set_token_secret(join.token_secret);
  enrol.set_run_id(join.run_id);
  enrol.set_role(role);
  enrol.set_name(name);
  ASSIGN_OR_RETURN(*enrol.mutable_certificate_request(),
                   rpc::MakeCertificateRequest(key));
  ASSIGN_OR_RETURN(const v1::Enrolled enrolled,
                   TakeEnrolled(call({join.gate_address, join.pin}, request),
                                join.pin, key));
  EnrolmentRecord record;
  record.gate_address = join.gate_address;
  record.pin = join.pin;
  record.run_id = join.run_id;
  record.token_id = join.token_id;
  record.role = role;
  Enrolment made(directory, std::move(record));
  RETURN_IF_ERROR(made.Write(enrolled));
  return made;
}

absl::StatusOr<Enrolment> Enrolment::Open(const std::string& parent,
                                          const std::string& run_id) {
  FileSystem& fs = PosixFileSystem();
  const absl::StatusOr<std::vector<std::string>> names = fs.List(parent);
  std::vector<Enrolment> found;
  if (names.ok()) {
    for (const std::string& name : *names) {
      if (!absl::StartsWith(name, run_id + ".")) continue;
      absl::StatusOr<Enrolment> read = Read(FileIn(parent, name));
      if (read.ok() && read->record_.role == v1::ENROLLED_ROLE_ISLAND) {
        found.push_back(*std::move(read));
      }
    }
  }
  if (found.size() == 1) return std::move(found[0]);
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("this machine is not enrolled in a run ", run_id));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this machine is enrolled in ", run_id, " ", found.size(),
                   " times: give the join string of the one that is meant"));
}

rpc::TlsFiles Enrolment::tls_files() const {
  return {FileIn(directory_, kTlsCertFile), FileIn(directory_, kTlsKeyFile),
          FileIn(directory_, kCaCertFile)};
}

std::string Enrolment::profile_path() const {
  return FileIn(directory_, kProfileFile);
}

absl::Status Enrolment::Write(const v1::Enrolled& enrolled) {
  // A user may have added settings, so only a missing or wrong one is replaced.
  if (record_.role == v1::ENROLLED_ROLE_READER &&
      (record_.coordinator_address != enrolled.coordinator_address() ||
       !HoldsFile(directory_, kProfileFile))) {
    RETURN_IF_ERROR(WriteFileIn(directory_, kProfileFile,
                                MakeProfile(enrolled.coordinator_address())));
  }
  record_.name = enrolled.identity().name();
  record_.coordinator_address = enrolled.coordinator_address();
  record_.server_addresses = {enrolled.server_addresses().begin(),
                              enrolled.server_addresses().end()};
  RETURN_IF_ERROR(WriteFileIn(directory_, kCaCertFile, enrolled.root_pem()));
  // Before the certificate: a renewal that is cut off here is made again.
  RETURN_IF_ERROR(
      WriteFileIn(directory_, kDataTokenFile, enrolled.data_token()));
  RETURN_IF_ERROR(
      WriteFileIn(directory_, kTlsCertFile, enrolled.certificate_chain_pem()));
  return WriteFileIn(directory_, kRecordFile, ToJson(record_).dump(2) + "\n");
}

absl::Time Enrolment::RenewalTime() const {
  const auto facts = ReadCertificate(directory_);
  if (!facts.ok()) return absl::InfinitePast();
  const absl::Time issued = facts->begin + kBack;
  return issued + (facts->end - issued) * 2 / 3;
}

absl::Time Enrolment::EndTime() const {
  const auto facts = ReadCertificate(directory_);
  return facts.ok() ? facts->end : absl::InfinitePast();
}

std::string Enrolment::ReadDataToken() const {
  return ReadFileIn(directory_, kDataTokenFile).value_or("");
}

bool Enrolment::IsValid(absl::Time now) const {
  const auto facts = ReadCertificate(directory_);
  return facts.ok() && facts->begin <= now && now <= facts->end;
}

absl::Status Enrolment::Renew(const GateCall& call, int stop_fd) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(directory_));
  return RenewLocked(call, stop_fd);
}

absl::Status Enrolment::RenewIfDue(const GateCall& call, absl::Time now,
                                   int stop_fd) {
  if (now < RenewalTime()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(directory_));
  if (now < RenewalTime()) return absl::OkStatus();
  return RenewLocked(call, stop_fd);
}

absl::Status Enrolment::RenewLocked(const GateCall& call, int stop_fd) {
  ASSIGN_OR_RETURN(const std::string key, ReadFileIn(directory_, kTlsKeyFile));
  absl::StatusOr<std::string> cert = ReadFileIn(directory_, kTlsCertFile);
  // The process has too many open files, or the machine has no memory.
  if (absl::IsUnavailable(cert.status())) return cert.status();
  if (!cert.ok() || !rpc::CheckKey(*cert, key).ok()) {
    const bool is_read = cert.ok() && rpc::ReadFacts(*cert).ok();
    return Damaged(directory_, is_read ? kTlsKeyFile : kTlsCertFile);
  }
  v1::GateRequest request;
  request.mutable_renew();
  ASSIGN_OR_RETURN(const v1::Enrolled enrolled,
                   TakeEnrolled(call({record_.gate_address, record_.pin, key,
                                      *std::move(cert), stop_fd},
                                     request),
                                record_.pin, key));
  return Write(enrolled);
}

EnrolmentRenewer::EnrolmentRenewer(Enrolment& enrolment, GateCall call,
                                   absl::Duration delay)
    : enrolment_(enrolment), call_(std::move(call)), delay_(delay) {
  thread_ = std::thread([this] { Run(); });
}

EnrolmentRenewer::~EnrolmentRenewer() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (waker_.ok()) SetWaker(waker_->get());
  thread_.join();
}

void EnrolmentRenewer::Run() {
  absl::Duration retry = absl::Seconds(1);
  std::string logged;
  {
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitWithTimeout(&mutex_, delay_);
    if (stopping_) return;
  }
  while (true) {
    absl::Duration wait = kLookPeriod;
    const absl::Time now = absl::Now();
    if (const absl::Time due = enrolment_.RenewalTime(); now >= due) {
      const absl::Status renewed =
          enrolment_.RenewIfDue(call_, now, waker_.ok() ? waker_->get() : -1);
      if (renewed.ok()) {
        retry = absl::Seconds(1);
        logged.clear();
        wait = std::clamp(enrolment_.RenewalTime() - absl::Now(),
                          absl::ZeroDuration(), kLookPeriod);
      } else {
        wait = retry;
        retry = std::min(retry * 2, kRetryMax);
        if (logged != renewed.message() && !absl::IsCancelled(renewed)) {
          logged = std::string(renewed.message());
          LOG(WARNING) << "the certificate is not renewed yet: " << logged;
        }
      }
      MutexLock lock(&mutex_);
      ++attempt_count_;
      last_ = renewed;
      changed_.SignalAll();
    } else {
      wait = std::min(wait, due - now);
    }
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitWithTimeout(&mutex_, wait);
    if (stopping_) return;
  }
}

absl::Status EnrolmentRenewer::WaitUntilValid(absl::Duration patience,
                                              std::stop_token stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  });
  const absl::Time deadline = absl::Now() + patience;
  int64_t attempts_before;
  {
    MutexLock lock(&mutex_);
    attempts_before = attempt_count_;
  }
  while (!enrolment_.IsValid(absl::Now())) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    MutexLock lock(&mutex_);
    const bool is_final = attempt_count_ > attempts_before && IsFinal(last_);
    if (is_final || absl::Now() >= deadline) {
      return last_.ok() ? absl::UnauthenticatedError(
                              "the certificate is not valid now and is not "
                              "renewed; is this machine's clock right?")
                        : last_;
    }
    changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(500));
  }
  return absl::OkStatus();
}

}  // namespace atl::cli
