// Tokens and enrolled names: they decide which islands may join which run.
//
// Durable: Apply is the only change. A decision returns the records that carry
// it out, so that a token's use and the name that it makes are in one batch.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "base/identity/identity.h"
#include "coordinator/core/enrolment/enrolment_run.h"

namespace atl::coordinator {

inline constexpr int64_t kTokensMax = 4096;
// Names, and unused uses of valid tokens: a token's uses have room from the
// start, so no other token's holders can fill it. All names are in a snapshot of
// some 300 bytes each, and in a run's plans of 18 bytes each.
inline constexpr int64_t kIdentitiesMax = 16384;
inline constexpr int64_t kIdentitiesARunMax = 4096;
// Half of the islands that a run can have: one token cannot fill a run.
inline constexpr int64_t kUsesMax = 512;
inline constexpr int64_t kRevokedARunMax = 1024;
inline constexpr absl::Duration kTokenTtlMax = absl::Hours(24 * 90);
// How far back certificates begin: the clocks of two machines differ.
inline constexpr absl::Duration kCertificateBack = absl::Minutes(5);

// Random values for one decision, made by the caller.
struct EnrolmentRandom {
  std::string serial;       // 32 hex digits.
  std::string name_suffix;  // At least 6 hex digits.
};

// Times below are the machine's, not those of the log: other machines compare
// them with their clocks.

// The result of a decision: the answer, and the records to append. No records:
// the answer was given before.
struct Grant {
  v1::CertificateGrant grant;
  std::vector<storage::v1::Record> records;
};

class Enrolments {
 public:
  // --- Durable ---------------------------------------------------------------

  // Takes token_set, token_forgotten, identity_set, identity_forgotten and
  // run_deleted; ignores others.
  void Apply(const storage::v1::Record& record);
  void Restore(const storage::v1::CoordinatorSnapshot& snapshot);
  void AddTo(storage::v1::CoordinatorSnapshot& snapshot) const;

  // --- Decisions: errors as enrolment_service.proto has them -----------------

  // Returns the token with this id and secret, whether or not it still admits.
  // UNAUTHENTICATED, WRONG_TOKEN: no token has both.
  absl::StatusOr<const storage::v1::TokenSet*> FindBySecret(
      const std::string& token_id, absl::string_view secret) const;
  // Requires: `set` is what FindBySecret returns for the request.
  absl::StatusOr<Grant> Consume(const v1::ConsumeTokenRequest& request,
                                const storage::v1::TokenSet& set,
                                const EnrolmentRun& run,
                                const EnrolmentRandom& random,
                                absl::Time now) const;
  absl::StatusOr<v1::Token> Check(const std::string& token_id,
                                  absl::string_view secret,
                                  const std::string& run_id,
                                  absl::Time now) const;
  absl::StatusOr<Grant> Renew(const v1::RenewCertificateRequest& request,
                              const EnrolmentRandom& random,
                              absl::Time now) const;
  // Records of a new token; none if the same token is there.
  absl::StatusOr<std::vector<storage::v1::Record>> Create(
      const v1::CreateTokenRequest& request, const EnrolmentRun& run,
      absl::Time now) const;
  // One record; none if that was done before. Others may have the names of the
  // token's islands that are no members. With `islands` all names of the token
  // are revoked too, and others may have them.
  absl::StatusOr<std::vector<storage::v1::Record>> Revoke(
      const std::string& token_id, bool islands, absl::Time now) const;
  // RESOURCE_EXHAUSTED: the run has kRevokedARunMax revoked names.
  absl::StatusOr<std::vector<storage::v1::Record>> RevokeName(
      const EnrolmentRun& run, const std::string& name) const;

  // --- Queries ---------------------------------------------------------------

  // Returns null if the token does not exist.
  const v1::Token* FindToken(const std::string& token_id) const;
  const storage::v1::IdentitySet* FindIdentity(const std::string& run_uid,
                                               const std::string& name) const;
  int64_t CountNames(const v1::Token& token) const;
  // OK if the key with which a certificate was made has `name` and `role` in the
  // run, and is not revoked.
  // PERMISSION_DENIED, REVOKED. FAILED_PRECONDITION, NOT_ENROLLED: no record has
  // them; the island CA's key alone makes no member.
  absl::Status CheckEnrolled(const std::string& run_uid, Role role,
                             const std::string& name,
                             absl::string_view key_sha256) const;
  // By itself or with its token.
  bool IsRevoked(const std::string& run_uid, const std::string& name) const;
  // The same of an operator's own certificate.
  bool IsOwnRevoked(const std::string& run_uid, const std::string& name) const;
  // EnrolledDigest of each name that is not revoked.
  std::vector<std::string> ListEnrolled(const std::string& run_uid) const;
  // Names that were revoked by themselves.
  std::vector<std::string> RevokedNames(const std::string& run_uid) const;
  // Lists the tokens of a run, or of all if `run_id` is empty; newest first.
  std::vector<v1::Token> ListTokens(const std::string& run_id) const;

 private:
  using Key = std::pair<std::string, std::string>;  // run_uid, name.

  absl::StatusOr<std::string> ChooseName(const v1::Token& token,
                                         const v1::ConsumeTokenRequest& request,
                                         const EnrolmentRandom& random) const;
  // The name that the key got by the token; null: none.
  const storage::v1::IdentitySet* FindEarlier(
      const v1::Token& token, const std::string& key_sha256) const;

  // OK if the key may have `name`.
  absl::Status CheckName(const EnrolmentRun& run, const std::string& name,
                         const std::string& key_sha256, absl::Time now) const;
  // True if others may have the name: it was revoked with its token, or its
  // token was and it is no member of `run`, or it can no longer be renewed.
  bool IsFree(const storage::v1::IdentitySet& set, const EnrolmentRun& run,
              absl::Time now) const;
  bool HasRevokedToken(const storage::v1::IdentitySet& set) const;
  // Makes room for one more name: the record that drops a free one, if all are
  // taken. RESOURCE_EXHAUSTED: there is no such name.
  absl::StatusOr<std::vector<storage::v1::Record>> MakeRoom(
      const EnrolmentRun& run, absl::Time now) const;
  // OK if there is room for `use_count` more names of the run.
  // RESOURCE_EXHAUSTED, TOO_MANY_IDENTITIES.
  absl::Status CheckRoom(const EnrolmentRun& run, int64_t use_count,
                         absl::Time now) const;
  // The answer to a key that has consumed a use before.
  static absl::StatusOr<Grant> Repeat(const v1::ConsumeTokenRequest& request,
                                      const storage::v1::IdentitySet& earlier,
                                      const EnrolmentRandom& random,
                                      absl::Time now);

  std::map<std::string, storage::v1::TokenSet> tokens_;  // By token_id.
  std::map<Key, storage::v1::IdentitySet> identities_;
  std::map<std::string, std::set<std::string>> revoked_;  // Names by run_uid.
  std::map<Key, std::string> digests_;  // EnrolledDigest, if it has a key.
};

// True if `name` fits a Token.name_pattern: "" fits all, one "*" any characters.
bool FitsPattern(absl::string_view pattern, absl::string_view name);

}  // namespace atl::coordinator
