#include "coordinator/core/enrolment/enrolments.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr size_t kTokenIdBytes = 12;
constexpr size_t kHashBytes = 32;
constexpr size_t kSecretBytesMax = 64;
constexpr absl::Duration kLifetimeMin = absl::Seconds(5);
constexpr absl::Duration kLifetimeMax = absl::Hours(24);
// A common name is "atoll:island:NAME", of at most 64 bytes. With the prefix.
constexpr size_t kNameBytesMax = 51;
constexpr size_t kSuffixDigits = 6;

std::string Hash(absl::string_view secret) {
  const codec::Sha256Digest digest = codec::ComputeSha256(secret);
  return std::string(digest.begin(), digest.end());
}

absl::Status CheckTokenId(const std::string& id) {
  RETURN_IF_ERROR(CheckId("token_id", id));
  if (id.size() == kTokenIdBytes) return absl::OkStatus();
  return InvalidFields({{"token_id", "must have 12 characters of [a-z0-9]"}});
}

absl::Status CheckKey(absl::string_view key_sha256) {
  if (key_sha256.size() == kHashBytes) return absl::OkStatus();
  return InvalidFields({{"key_sha256", "must have 32 bytes"}});
}

absl::Status Forbidden(absl::string_view reason, absl::string_view message) {
  return Refuse(absl::StatusCode::kPermissionDenied, reason, message);
}

Role ToRole(v1::EnrolledRole role) {
  return role == v1::ENROLLED_ROLE_READER ? Role::kReader : Role::kIsland;
}

absl::string_view Name(v1::EnrolledRole role) { return RoleName(ToRole(role)); }

// The serial number's bytes: positive, and always 16 of them.
std::string ToSerial(const EnrolmentRandom& random) {
  std::string serial = absl::HexStringToBytes(random.serial);
  serial.resize(16, '\0');
  serial[0] = static_cast<char>((serial[0] & 0x3f) | 0x40);
  return serial;
}

absl::Status SetCertificate(const google::protobuf::Duration& lifetime,
                            const EnrolmentRandom& random, absl::Time now,
                            v1::CertificateGrant& grant) {
  const absl::Duration asked = FromProto(lifetime);
  if (asked < kLifetimeMin || asked > kLifetimeMax) {
    return InvalidFields(
        {{"lifetime", "must be at least 5 s and at most 24 h"}});
  }
  grant.set_serial(ToSerial(random));
  // X.509 has no fractions of a second.
  const absl::Time second = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  *grant.mutable_begin_time() = ToProto(second - kCertificateBack);
  *grant.mutable_end_time() = ToProto(second + asked);
  return absl::OkStatus();
}

absl::Status CheckPattern(absl::string_view pattern) {
  if (pattern.empty()) return absl::OkStatus();
  const std::string name = ToEnrolledName(
      absl::StrReplaceAll(pattern, {{"*", std::string(kSuffixDigits, '0')}}));
  if (std::count(pattern.begin(), pattern.end(), '*') <= 1 &&
      ValidateId("", name).ok() && name.size() <= kNameBytesMax) {
    return absl::OkStatus();
  }
  return InvalidFields({{"token.name_pattern",
                         "must be an island's id of at most 43 characters, "
                         "with at most one *, for example attic or lab-*"}});
}

// The token may be older than the bound.
int64_t UsesMax(const v1::Token& token) {
  return std::min(token.use_count_max(), kUsesMax);
}

// `is_repeat`: the caller has consumed a use before.
absl::Status CheckUsable(const v1::Token& token, const std::string& run_id,
                         bool is_repeat, absl::Time now) {
  if (token.run_id() != run_id) {
    return Forbidden("TOKEN_OTHER_RUN",
                     absl::StrCat("the token is for the run ", token.run_id(),
                                  ", not for ", run_id.substr(0, 64)));
  }
  if (token.has_revoke_time()) {
    return Forbidden("TOKEN_REVOKED",
                     "the operator has revoked the token: ask for a new join "
                     "string");
  }
  if (is_repeat) return absl::OkStatus();
  if (const absl::Time end = FromProto(token.expire_time()); now >= end) {
    return Forbidden(
        "TOKEN_EXPIRED",
        absl::StrCat(
            "the token expired at ",
            absl::FormatTime(absl::RFC3339_sec, end, absl::UTCTimeZone()),
            ": ask the operator for a new join string"));
  }
  if (token.use_count() >= UsesMax(token)) {
    return Forbidden(
        "TOKEN_USED",
        absl::StrCat("the token was used ", token.use_count(), " of ",
                     UsesMax(token),
                     " times: ask the operator for a new join string"));
  }
  return absl::OkStatus();
}

// True if the token admits further keys.
bool IsValid(const v1::Token& token, absl::Time now) {
  return !token.has_revoke_time() && now < FromProto(token.expire_time()) &&
         token.use_count() < UsesMax(token);
}

// A grant to the key of `known`, with the next certificate.
absl::StatusOr<Grant> Extend(const storage::v1::IdentitySet& known,
                             const google::protobuf::Duration& lifetime,
                             const EnrolmentRandom& random, absl::Time now) {
  Grant granted;
  granted.grant = known.grant();
  RETURN_IF_ERROR(SetCertificate(lifetime, random, now, granted.grant));
  storage::v1::IdentitySet& renewed =
      *granted.records.emplace_back().mutable_identity_set();
  renewed = known;
  *renewed.mutable_grant() = granted.grant;
  return granted;
}

}  // namespace

bool FitsPattern(absl::string_view pattern, absl::string_view name) {
  if (pattern.empty()) return true;
  const size_t star = pattern.find('*');
  if (star == absl::string_view::npos) return name == pattern;
  return name.size() + 1 >= pattern.size() &&
         absl::StartsWith(name, pattern.substr(0, star)) &&
         absl::EndsWith(name, pattern.substr(star + 1));
}

// --- Durable -----------------------------------------------------------------

void Enrolments::Apply(const storage::v1::Record& record) {
  if (record.has_token_set()) {
    tokens_[record.token_set().token().token_id()] = record.token_set();
  } else if (record.has_token_forgotten()) {
    const std::string& id = record.token_forgotten().token_id();
    // Without its token a revoked name would count again.
    std::erase_if(identities_, [this, &id](const auto& item) {
      const bool goes = item.second.token_id() == id &&
                        !item.second.revoked() && HasRevokedToken(item.second);
      if (goes) digests_.erase(item.first);
      return goes;
    });
    tokens_.erase(id);
  } else if (record.has_identity_set()) {
    const v1::EnrolledIdentity& identity =
        record.identity_set().grant().identity();
    storage::v1::IdentitySet& set =
        identities_[{identity.run_uid(), identity.name()}];
    if (record.identity_set().revoked()) {
      revoked_[identity.run_uid()].insert(identity.name());
    }
    set = record.identity_set();
    if (!set.key_sha256().empty()) {
      digests_[{identity.run_uid(), identity.name()}] = EnrolledDigest(
          ToRole(identity.role()), identity.name(), set.key_sha256());
    }
  } else if (record.has_identity_forgotten()) {
    const Key key = {record.identity_forgotten().run_uid(),
                     record.identity_forgotten().name()};
    identities_.erase(key);
    digests_.erase(key);
  } else if (record.has_run_deleted()) {
    const std::string& uid = record.run_deleted().run_uid();
    identities_.erase(identities_.lower_bound({uid, ""}),
                      identities_.lower_bound({uid + '\0', ""}));
    digests_.erase(digests_.lower_bound({uid, ""}),
                   digests_.lower_bound({uid + '\0', ""}));
    revoked_.erase(uid);
    std::erase_if(tokens_, [&uid](const auto& token) {
      return token.second.token().run_uid() == uid;
    });
  }
}

void Enrolments::Restore(const storage::v1::CoordinatorSnapshot& snapshot) {
  storage::v1::Record record;
  for (const storage::v1::TokenSet& token : snapshot.tokens()) {
    *record.mutable_token_set() = token;
    Apply(record);
  }
  for (const storage::v1::IdentitySet& identity : snapshot.identities()) {
    *record.mutable_identity_set() = identity;
    Apply(record);
  }
}

void Enrolments::AddTo(storage::v1::CoordinatorSnapshot& snapshot) const {
  for (const auto& [id, token] : tokens_) *snapshot.add_tokens() = token;
  for (const auto& [key, identity] : identities_) {
    *snapshot.add_identities() = identity;
  }
}

// --- Decisions ---------------------------------------------------------------

absl::StatusOr<const storage::v1::TokenSet*> Enrolments::FindBySecret(
    const std::string& token_id, absl::string_view secret) const {
  RETURN_IF_ERROR(CheckTokenId(token_id));
  const auto found = tokens_.find(token_id);
  // Unknown ids and wrong secrets get one answer: ids cannot be searched for.
  if (found == tokens_.end() || secret.size() > kSecretBytesMax ||
      Hash(secret) != found->second.secret_sha256()) {
    return Refuse(absl::StatusCode::kUnauthenticated, "WRONG_TOKEN",
                  "the coordinator knows no such token: check that the join "
                  "string is complete, or ask the operator for a new one");
  }
  return &found->second;
}

const storage::v1::IdentitySet* Enrolments::FindEarlier(
    const v1::Token& token, const std::string& key_sha256) const {
  for (auto it = identities_.lower_bound({token.run_uid(), ""});
       it != identities_.end() && it->first.first == token.run_uid(); ++it) {
    if (it->second.token_id() == token.token_id() &&
        it->second.key_sha256() == key_sha256) {
      return &it->second;
    }
  }
  return nullptr;
}

absl::StatusOr<std::string> Enrolments::ChooseName(
    const v1::Token& token, const v1::ConsumeTokenRequest& request,
    const EnrolmentRandom& random) const {
  const std::string pattern = ToEnrolledName(
      !token.name_pattern().empty() ? token.name_pattern()
                                    : absl::StrCat(Name(token.role()), "-*"));
  if (request.name().empty()) {
    return absl::StrReplaceAll(
        pattern, {{"*", random.name_suffix.substr(0, kSuffixDigits)}});
  }
  RETURN_IF_ERROR(CheckId("name", request.name()));
  const std::string name = ToEnrolledName(request.name());
  if (name.size() > kNameBytesMax) {
    return InvalidFields({{"name", "must have at most 51 characters, the e- at "
                                   "its beginning included"}});
  }
  if (token.name_pattern().empty() || FitsPattern(pattern, name)) return name;
  return Forbidden("TOKEN_OTHER_NAME",
                   absl::StrCat("the token is for the name ", pattern,
                                ", not for ", name,
                                ": leave out --island-id"));
}

absl::Status Enrolments::CheckName(const EnrolmentRun& run,
                                   const std::string& name,
                                   const std::string& key_sha256,
                                   absl::Time now) const {
  const auto* const other = FindIdentity(run.run_uid, name);
  if (other == nullptr && run.is_member(name)) {
    // An older certificate of an operator's may have such a name.
    return Refuse(absl::StatusCode::kAlreadyExists, "NAME_TAKEN",
                  absl::StrCat("another machine is the island ", name,
                               " of this run: choose another --island-id"));
  }
  if (other == nullptr) return absl::OkStatus();
  if (other->revoked()) {
    return Forbidden("REVOKED",
                     absl::StrCat("an operator has revoked the name ", name,
                                  " in this run: choose another"));
  }
  if (other->key_sha256() != key_sha256 && !IsFree(*other, run, now)) {
    return Refuse(absl::StatusCode::kAlreadyExists, "NAME_TAKEN",
                  absl::StrCat("another machine is enrolled as ", name,
                               " in this run: choose another --island-id"));
  }
  return absl::OkStatus();
}

bool Enrolments::HasRevokedToken(const storage::v1::IdentitySet& set) const {
  const v1::Token* const token = FindToken(set.token_id());
  return token != nullptr && token->has_islands_revoke_time() &&
         token->run_uid() == set.grant().identity().run_uid();
}

// A name that was revoked by itself stays: it must remain refused.
bool Enrolments::IsFree(const storage::v1::IdentitySet& set,
                        const EnrolmentRun& run, absl::Time now) const {
  if (set.revoked()) return false;
  const v1::EnrolledIdentity& identity = set.grant().identity();
  const v1::Token* const token = FindToken(set.token_id());
  // Nothing shows whether a reader still reads.
  const bool is_left_over = token != nullptr && token->has_revoke_time() &&
                            token->role() == v1::ENROLLED_ROLE_ISLAND &&
                            identity.run_uid() == run.run_uid &&
                            !run.is_present(identity.name());
  return is_left_over || HasRevokedToken(set) ||
         now >= FromProto(set.grant().end_time()) + kRenewableAfterEnd;
}

absl::StatusOr<std::vector<storage::v1::Record>> Enrolments::MakeRoom(
    const EnrolmentRun& run, absl::Time now) const {
  std::vector<storage::v1::Record> records;
  const auto begin = identities_.lower_bound({run.run_uid, ""});
  const auto end = identities_.lower_bound({run.run_uid + '\0', ""});
  const bool run_is_full = std::distance(begin, end) >= kIdentitiesARunMax;
  if (!run_is_full &&
      static_cast<int64_t>(identities_.size()) < kIdentitiesMax) {
    return records;
  }
  const auto first = run_is_full ? begin : identities_.begin();
  const auto last = run_is_full ? end : identities_.end();
  const auto gone = std::find_if(first, last, [&](const auto& item) {
    return IsFree(item.second, run, now);
  });
  if (gone == last) return CheckRoom(run, /*use_count=*/1, now);
  storage::v1::IdentityForgotten& forgotten =
      *records.emplace_back().mutable_identity_forgotten();
  forgotten.set_run_uid(gone->first.first);
  forgotten.set_name(gone->first.second);
  return records;
}

absl::Status Enrolments::CheckRoom(const EnrolmentRun& run, int64_t use_count,
                                   absl::Time now) const {
  int64_t all = use_count;
  int64_t of_run = use_count;
  const auto add = [&](const std::string& run_uid, int64_t count) {
    all += count;
    if (run_uid == run.run_uid) of_run += count;
  };
  for (const auto& [key, set] : identities_) {
    if (!IsFree(set, run, now)) add(key.first, 1);
  }
  for (const auto& [id, set] : tokens_) {
    const v1::Token& token = set.token();
    if (IsValid(token, now)) {
      add(token.run_uid(), UsesMax(token) - token.use_count());
    }
  }
  if (of_run <= kIdentitiesARunMax && all <= kIdentitiesMax) {
    return absl::OkStatus();
  }
  const bool run_is_full = of_run > kIdentitiesARunMax;
  return Refuse(
      absl::StatusCode::kResourceExhausted, "TOO_MANY_IDENTITIES",
      absl::StrCat(run_is_full ? absl::StrCat("run ", run.run_id)
                               : std::string("the coordinator"),
                   " has room for ",
                   run_is_full ? kIdentitiesARunMax : kIdentitiesMax,
                   " enrolled names and unused uses of tokens: `atoll token "
                   "revoke --islands TOKEN` makes room, and a smaller --uses "
                   "needs less"));
}

absl::StatusOr<Grant> Enrolments::Repeat(
    const v1::ConsumeTokenRequest& request,
    const storage::v1::IdentitySet& earlier, const EnrolmentRandom& random,
    absl::Time now) {
  const std::string& name = earlier.grant().identity().name();
  if (!request.name().empty() && request.name() != name &&
      ToEnrolledName(request.name()) != name) {
    return Forbidden("TOKEN_OTHER_NAME",
                     absl::StrCat("this key is enrolled as ", name));
  }
  if (earlier.revoked()) {
    return Forbidden("REVOKED",
                     absl::StrCat("an operator has revoked ", name));
  }
  if (now < FromProto(earlier.grant().end_time())) {
    return Grant{earlier.grant(), {}};
  }
  return Extend(earlier, request.lifetime(), random, now);
}

absl::StatusOr<Grant> Enrolments::Consume(
    const v1::ConsumeTokenRequest& request, const storage::v1::TokenSet& set,
    const EnrolmentRun& run, const EnrolmentRandom& random,
    absl::Time now) const {
  RETURN_IF_ERROR(CheckKey(request.key_sha256()));
  const v1::Token& token = set.token();
  const auto* const earlier = FindEarlier(token, request.key_sha256());
  RETURN_IF_ERROR(
      CheckUsable(token, request.run_id(), earlier != nullptr, now));
  if (token.run_uid() != run.run_uid) {
    return Forbidden("TOKEN_OTHER_RUN",
                     absl::StrCat("the token is for a run ", run.run_id,
                                  " that was deleted; another has its id now"));
  }
  if (request.role() != token.role()) {
    return Forbidden("TOKEN_OTHER_ROLE",
                     absl::StrCat("the token admits to the role ",
                                  Name(token.role()), " and no other: `atoll ",
                                  token.role() == v1::ENROLLED_ROLE_READER
                                      ? "enrol"
                                      : "join",
                                  "` uses it"));
  }
  if (earlier != nullptr) return Repeat(request, *earlier, random, now);
  ASSIGN_OR_RETURN(const std::string name, ChooseName(token, request, random));
  RETURN_IF_ERROR(CheckName(run, name, request.key_sha256(), now));
  Grant granted;
  if (FindIdentity(run.run_uid, name) == nullptr) {
    ASSIGN_OR_RETURN(granted.records, MakeRoom(run, now));
  }
  v1::EnrolledIdentity& identity = *granted.grant.mutable_identity();
  identity.set_cluster_id(run.cluster_id);
  identity.set_run_id(run.run_id);
  identity.set_run_uid(run.run_uid);
  identity.set_role(token.role());
  identity.set_name(name);
  RETURN_IF_ERROR(
      SetCertificate(request.lifetime(), random, now, granted.grant));
  storage::v1::TokenSet& used =
      *granted.records.emplace_back().mutable_token_set();
  used = set;
  used.mutable_token()->set_use_count(token.use_count() + 1);
  storage::v1::IdentitySet& made =
      *granted.records.emplace_back().mutable_identity_set();
  *made.mutable_grant() = granted.grant;
  made.set_key_sha256(request.key_sha256());
  made.set_token_id(token.token_id());
  made.set_weight_share_max(token.weight_share_max());
  return granted;
}

absl::StatusOr<v1::Token> Enrolments::Check(const std::string& token_id,
                                            absl::string_view secret,
                                            const std::string& run_id,
                                            absl::Time now) const {
  ASSIGN_OR_RETURN(const storage::v1::TokenSet* const set,
                   FindBySecret(token_id, secret));
  RETURN_IF_ERROR(
      CheckUsable(set->token(), run_id, /*is_repeat=*/false, now));
  return set->token();
}

absl::StatusOr<Grant> Enrolments::Renew(
    const v1::RenewCertificateRequest& request, const EnrolmentRandom& random,
    absl::Time now) const {
  RETURN_IF_ERROR(CheckKey(request.key_sha256()));
  const v1::EnrolledIdentity& asked = request.identity();
  const auto* const known = FindIdentity(asked.run_uid(), asked.name());
  if (known == nullptr || known->key_sha256() != request.key_sha256() ||
      known->grant().identity().role() != asked.role() ||
      known->grant().identity().cluster_id() != asked.cluster_id()) {
    return Refuse(absl::StatusCode::kNotFound, "NOT_ENROLLED",
                  absl::StrCat("the coordinator does not know ",
                               asked.name().substr(0, 64),
                               " with this key: its run was deleted, or "
                               "another machine has the name. Ask the operator "
                               "for a new join string"));
  }
  if (IsRevoked(asked.run_uid(), asked.name())) {
    return Forbidden("REVOKED",
                     absl::StrCat("an operator has revoked ", asked.name()));
  }
  if (now >= FromProto(known->grant().end_time()) + kRenewableAfterEnd) {
    return Forbidden("TOO_OLD",
                     "the certificate expired more than 30 days ago: ask the "
                     "operator for a new join string");
  }
  // Grants a young certificate again. So an island that asks in a loop makes no
  // records, and one whose answer was lost gets its certificate.
  const absl::Time issued =
      FromProto(known->grant().begin_time()) + kCertificateBack;
  const absl::Time end = FromProto(known->grant().end_time());
  if (now < issued + (end - issued) / 3) return Grant{known->grant(), {}};
  return Extend(*known, request.lifetime(), random, now);
}

absl::StatusOr<std::vector<storage::v1::Record>> Enrolments::Create(
    const v1::CreateTokenRequest& request, const EnrolmentRun& run,
    absl::Time now) const {
  const v1::Token& asked = request.token();
  RETURN_IF_ERROR(CheckTokenId(asked.token_id()));
  RETURN_IF_ERROR(CheckPattern(asked.name_pattern()));
  const absl::Time end = FromProto(asked.expire_time());
  std::vector<FieldViolation> wrong;
  if (request.secret_sha256().size() != kHashBytes) {
    wrong.push_back({"secret_sha256", "must have 32 bytes"});
  }
  if (asked.role() != v1::ENROLLED_ROLE_ISLAND &&
      asked.role() != v1::ENROLLED_ROLE_READER) {
    wrong.push_back({"token.role", "must be island or reader"});
  }
  const int64_t uses_max =
      std::clamp<int64_t>(run.islands_max / 2, 1, kUsesMax);
  if (asked.use_count_max() < 1 || asked.use_count_max() > uses_max) {
    wrong.push_back(
        {"token.use_count_max",
         absl::StrCat("must be in [1, ", uses_max,
                      "], half of the islands that the run can have")});
  }
  if (!(end > now && end <= now + kTokenTtlMax)) {
    wrong.push_back({"token.expire_time",
                     "must be in the future, at most 90 days ahead"});
  }
  const double share = asked.weight_share_max();
  if (!(share >= 0 && share < 1)) {
    wrong.push_back({"token.weight_share_max",
                     "must be in (0, 1), or 0 for no limit"});
  }
  if (!wrong.empty()) return InvalidFields(wrong);
  std::vector<storage::v1::Record> records;
  if (const auto old = tokens_.find(asked.token_id()); old != tokens_.end()) {
    if (old->second.secret_sha256() == request.secret_sha256() &&
        old->second.token().run_uid() == run.run_uid) {
      return records;
    }
    return Refuse(absl::StatusCode::kAlreadyExists, "TOKEN_EXISTS",
                  absl::StrCat("there is another token ", asked.token_id()));
  }
  RETURN_IF_ERROR(CheckFits(request, run, ListTokens(run.run_id), now));
  RETURN_IF_ERROR(CheckRoom(run, asked.use_count_max(), now));
  if (tokens_.size() >= kTokensMax) {
    const auto ended = std::find_if(
        tokens_.begin(), tokens_.end(), [now](const auto& item) {
          return !IsValid(item.second.token(), now);
        });
    if (ended == tokens_.end()) {
      return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_TOKENS",
                    absl::StrCat(kTokensMax,
                                 " tokens are valid, the most that can be: "
                                 "revoke some, or give one more --uses"));
    }
    records.emplace_back().mutable_token_forgotten()->set_token_id(
        ended->first);
  }
  storage::v1::TokenSet& made =
      *records.emplace_back().mutable_token_set();
  v1::Token& token = *made.mutable_token();
  token = asked;
  token.set_run_id(run.run_id);
  token.set_run_uid(run.run_uid);
  token.set_use_count(0);
  token.clear_revoke_time();
  token.clear_islands_revoke_time();
  *token.mutable_create_time() = ToProto(now);
  made.set_secret_sha256(request.secret_sha256());
  return records;
}

absl::StatusOr<std::vector<storage::v1::Record>> Enrolments::Revoke(
    const std::string& token_id, bool islands, absl::Time now) const {
  const auto found = tokens_.find(token_id);
  if (found == tokens_.end()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_TOKEN",
                  absl::StrCat("there is no token \"", token_id.substr(0, 64),
                               "\": `atoll token list` shows those there are"));
  }
  std::vector<storage::v1::Record> records;
  storage::v1::TokenSet set = found->second;
  v1::Token& token = *set.mutable_token();
  if (token.has_revoke_time() &&
      (!islands || token.has_islands_revoke_time())) {
    return records;
  }
  if (!token.has_revoke_time()) *token.mutable_revoke_time() = ToProto(now);
  if (islands) *token.mutable_islands_revoke_time() = ToProto(now);
  *records.emplace_back().mutable_token_set() = std::move(set);
  return records;
}

absl::StatusOr<std::vector<storage::v1::Record>> Enrolments::RevokeName(
    const EnrolmentRun& run, const std::string& name) const {
  std::vector<storage::v1::Record> records;
  const auto names = revoked_.find(run.run_uid);
  if (names != revoked_.end() && names->second.contains(name)) return records;
  if (names != revoked_.end() &&
      static_cast<int64_t>(names->second.size()) >= kRevokedARunMax) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_REVOKED",
                  absl::StrCat("run ", run.run_id, " has ", kRevokedARunMax,
                               " revoked islands, the most it can: revoke the "
                               "token that they used"));
  }
  storage::v1::IdentitySet& set =
      *records.emplace_back().mutable_identity_set();
  if (const auto* const known = FindIdentity(run.run_uid, name)) {
    set = *known;
  } else {
    v1::EnrolledIdentity& identity = *set.mutable_grant()->mutable_identity();
    identity.set_cluster_id(run.cluster_id);
    identity.set_run_id(run.run_id);
    identity.set_run_uid(run.run_uid);
    identity.set_role(v1::ENROLLED_ROLE_ISLAND);
    identity.set_name(name);
  }
  set.set_revoked(true);
  return records;
}

// --- Queries -----------------------------------------------------------------

const v1::Token* Enrolments::FindToken(const std::string& token_id) const {
  const auto found = tokens_.find(token_id);
  return found == tokens_.end() ? nullptr : &found->second.token();
}

const storage::v1::IdentitySet* Enrolments::FindIdentity(
    const std::string& run_uid, const std::string& name) const {
  const auto found = identities_.find({run_uid, name});
  return found == identities_.end() ? nullptr : &found->second;
}

int64_t Enrolments::CountNames(const v1::Token& token) const {
  return std::count_if(identities_.begin(), identities_.end(),
                       [&token](const auto& item) {
                         return item.second.token_id() == token.token_id() &&
                                item.first.first == token.run_uid();
                       });
}

absl::Status Enrolments::CheckEnrolled(const std::string& run_uid, Role role,
                                       const std::string& name,
                                       absl::string_view key_sha256) const {
  const auto digest = digests_.find({run_uid, name});
  if (digest == digests_.end() ||
      digest->second != EnrolledDigest(role, name, key_sha256)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_ENROLLED",
                  absl::StrCat("the coordinator has no record of this "
                               "certificate of ",
                               name,
                               ": another machine has the name, or none does. "
                               "Ask the operator for a new join string"));
  }
  if (!IsRevoked(run_uid, name)) return absl::OkStatus();
  return Forbidden("REVOKED", absl::StrCat("an operator has revoked ", name));
}

std::vector<std::string> Enrolments::ListEnrolled(
    const std::string& run_uid) const {
  std::vector<std::string> enrolled;
  for (auto it = digests_.lower_bound({run_uid, ""});
       it != digests_.end() && it->first.first == run_uid; ++it) {
    if (!IsRevoked(run_uid, it->first.second)) enrolled.push_back(it->second);
  }
  return enrolled;
}

bool Enrolments::IsOwnRevoked(const std::string& run_uid,
                              const std::string& name) const {
  // A name with a key was enrolled.
  return IsRevoked(run_uid, name) && !digests_.contains({run_uid, name});
}

bool Enrolments::IsRevoked(const std::string& run_uid,
                           const std::string& name) const {
  const auto names = revoked_.find(run_uid);
  if (names != revoked_.end() && names->second.contains(name)) return true;
  const storage::v1::IdentitySet* const known = FindIdentity(run_uid, name);
  return known != nullptr && HasRevokedToken(*known);
}

std::vector<std::string> Enrolments::RevokedNames(
    const std::string& run_uid) const {
  const auto names = revoked_.find(run_uid);
  if (names == revoked_.end()) return {};
  return {names->second.begin(), names->second.end()};
}

std::vector<v1::Token> Enrolments::ListTokens(const std::string& run_id) const {
  std::vector<v1::Token> tokens;
  for (const auto& [id, set] : tokens_) {
    if (run_id.empty() || set.token().run_id() == run_id) {
      tokens.push_back(set.token());
    }
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const v1::Token& a, const v1::Token& b) {
                     return FromProto(a.create_time()) >
                            FromProto(b.create_time());
                   });
  return tokens;
}

}  // namespace atl::coordinator
