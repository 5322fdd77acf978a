// ShardMachine's admission checks: they decide which peer may push, and where.

#include <algorithm>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/core/faults.h"
#include "server/core/shard_machine.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

// Most undecided contributions, refused ones included, of a fragment: by slot,
// by token with n slots, and by run with n slots. They keep islands from filling
// the disk and the reports with unwanted keys. A round needs one a slot, and an
// island that begins again a second one.
constexpr int kUndecidedMax = 4;
int TokenUndecidedMax(int slot_count) { return 2 * slot_count + 2; }
int RunUndecidedMax(int slot_count) { return 2 * slot_count + 16; }

// Far beyond any real count, and low enough that sums fit 64 bits.
constexpr int64_t kCountMax = int64_t{1} << 53;

// Compares in constant time.
bool SecretsEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

// An older epoch has lost. A newer one has not reached this server yet.
absl::Status CheckEpoch(absl::string_view what, int64_t theirs, int64_t ours) {
  if (theirs == ours) return absl::OkStatus();
  if (theirs < ours) {
    return Refuse(Code::kAborted,
                  absl::StrCat("STALE_", absl::AsciiStrToUpper(what)),
                  absl::StrCat(what, " ", theirs,
                               " is not the newest, which is ", ours,
                               "; fetch the plan"));
  }
  return Refuse(Code::kUnavailable, "PLAN_BEHIND",
                absl::StrCat(what, " ", theirs,
                             " has not reached this server yet; call again"));
}

}  // namespace

absl::Status ShardMachine::CheckPlace(int64_t run_epoch,
                                      int64_t placement_epoch,
                                      uint64_t layout_fingerprint,
                                      int32_t shard) const {
  if (layout_fingerprint != shape_.layout_fingerprint) {
    return Refuse(Code::kAborted, "OTHER_LAYOUT",
                  "layout_fingerprint is not that of this run; fetch the plan");
  }
  if (shard != shape_.shard) {
    return Refuse(Code::kAborted, "OTHER_SHARD",
                  absl::StrCat("this server holds shard ", shape_.shard,
                               ", not ", shard, "; fetch the plan"));
  }
  if (run_epoch != 0 && run_epoch_ != 0) {
    RETURN_IF_ERROR(CheckEpoch("run_epoch", run_epoch, run_epoch_));
  }
  if (placement_epoch != 0 && has_plan_) {
    RETURN_IF_ERROR(CheckEpoch("placement_epoch", placement_epoch,
                               plan_.placement_epoch()));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::PlanMember> ShardMachine::FindMember(int32_t slot) const {
  for (const v1::PlanMember& member : plan_.members()) {
    if (member.slot() == slot) return member;
  }
  return Refuse(Code::kFailedPrecondition, "NOT_A_MEMBER",
                absl::StrCat("slot ", slot,
                             " is not a member of the run; wait for the plan, "
                             "or Join again"));
}

absl::Status ShardMachine::CheckMember(int32_t slot) const {
  return FindMember(slot).status();
}

absl::Status ShardMachine::AdmitMember(int32_t slot, int64_t island_epoch,
                                       absl::string_view session_sha256) const {
  ASSIGN_OR_RETURN(const v1::PlanMember member, FindMember(slot));
  RETURN_IF_ERROR(
      CheckEpoch("island_epoch", island_epoch, member.island_epoch()));
  if (!SecretsEqual(session_sha256, member.session_sha256())) {
    return Refuse(
        Code::kUnauthenticated, "WRONG_SESSION",
        "the metadata \"atoll-session\" is not the secret that Join gave to "
        "this slot; Join again");
  }
  return absl::OkStatus();
}

absl::Status ShardMachine::AdmitContribution(
    const v1::ContributionInfo& info) const {
  const auto key = ContributionKey::FromProto(info.key());
  if (key.fragment < 0 ||
      key.fragment >= static_cast<int32_t>(fragments_.size())) {
    return Refuse(Code::kInvalidArgument, "NO_SUCH_FRAGMENT",
                  absl::StrCat("info.key.fragment ", key.fragment,
                               " is not in [0, ", fragments_.size(), ")"));
  }
  if (!shape_.fragments[key.fragment].holds) {
    return NoBlock(key.fragment);
  }
  if (key.slot < 0 || key.seq < 1 || key.seq > kCountMax) {
    return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                  "info.key.slot must be >= 0 and info.key.seq in [1, 2^53]");
  }
  if (info.codec() != shape_.codec) {
    return Refuse(Code::kInvalidArgument, "OTHER_CODEC",
                  absl::StrCat("info.codec ", static_cast<int>(info.codec()),
                               " is not the one that this run takes (",
                               v1::Codec_Name(shape_.codec),
                               ", exchange.up)"));
  }
  if (info.anchor_version() < 0 || info.step_count() < 1 ||
      info.token_count() < 0 || info.data_shard() < 0 ||
      info.data_begin() < 0 || info.data_end() < info.data_begin() ||
      std::max({info.step_count(), info.token_count(), info.data_end()}) >
          kCountMax) {
    return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                  "info has a negative number, no step, data_end < data_begin, "
                  "or step_count, token_count or data_end > 2^53");
  }
  const auto refused = refused_.find(key);
  if (refused != refused_.end()) {
    return Refuse(Code::kInvalidArgument, "CONTRIBUTION_REFUSED",
                  absl::StrCat(key.ToString(), " was refused: ",
                               refused->second.reason,
                               "; give it up and pull the newest version"));
  }
  // The key is bound: the header must equal the one that it is bound to.
  if (!decided_.count(key) && (stored_.count(key) || partial_.count(key))) {
    const v1::ContributionInfo& bound =
        stored_.count(key) ? stored_.at(key).info : partial_.at(key);
    if (bound.SerializeAsString() != info.SerializeAsString()) {
      return Refuse(
          Code::kAborted, "KEY_IS_BOUND",
          absl::StrCat(key.ToString(), " is bound to another header (digest ",
                       Digest128::FromProto(bound.digest()).ToHex(),
                       "); push what the first header said, or take the next "
                       "seq"));
    }
    return absl::OkStatus();
  }
  const int64_t version = fragments_[key.fragment].version;
  if (info.anchor_version() > version) {
    return Refuse(
        Code::kUnavailable, "PLAN_BEHIND",
        absl::StrCat("version ", info.anchor_version(), " of fragment ",
                     key.fragment, " is not here yet; call again"));
  }
  bool decided = decided_.count(key) != 0;
  for (const v1::ContributionOutcome& outcome : plan_.dropped()) {
    decided |= ContributionKey::FromProto(outcome.key()) == key;
  }
  for (const v1::Commit& commit : plan_.commits()) {
    for (const v1::ContributionOutcome& outcome : commit.outcomes()) {
      decided |= ContributionKey::FromProto(outcome.key()) == key;
    }
  }
  // One version too old may still be pushed, to be recorded as LATE or STALE.
  const int64_t oldest = version - 1 - shape_.max_staleness;
  if (decided || info.anchor_version() < oldest) {
    return Refuse(Code::kAborted, "ALREADY_DECIDED",
                  absl::StrCat(key.ToString(),
                               " is decided, or its anchor is older than "
                               "version ",
                               oldest, "; fetch the plan"));
  }
  // Pushed again after a loss: the digest must be the sealed one.
  for (const v1::Seal& seal : plan_.seals()) {
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      if (ContributionKey::FromProto(sealed.key()) == key &&
          Digest128::FromProto(sealed.digest()) !=
              Digest128::FromProto(info.digest())) {
        return Refuse(
            Code::kAborted, "KEY_IS_BOUND",
            absl::StrCat(key.ToString(), " is sealed with another digest (",
                         Digest128::FromProto(sealed.digest()).ToHex(),
                         "); push the bytes that were pushed before"));
      }
    }
  }
  return CheckUndecided(key);
}

absl::Status ShardMachine::CheckUndecided(const ContributionKey& key) const {
  std::set<int32_t> peers;  // The slots of the same token.
  for (const v1::TokenSlots& token : plan_.tokens()) {
    const std::set<int32_t> slots(token.slots().begin(), token.slots().end());
    if (slots.count(key.slot)) peers.insert(slots.begin(), slots.end());
  }
  std::set<ContributionKey> undecided;
  const auto add = [&](const ContributionKey& other) {
    if (other.fragment == key.fragment && !other.is_import() &&
        !decided_.count(other)) {
      undecided.insert(other);
    }
  };
  for (const auto& [other, fact] : stored_) add(other);
  for (const auto& [other, bound] : partial_) add(other);
  for (const auto& [other, fact] : refused_) add(other);
  for (const ContributionKey& other : opening_) add(other);
  undecided.erase(key);
  int of_slot = 0;
  int of_token = 0;
  for (const ContributionKey& other : undecided) {
    of_slot += other.slot == key.slot;
    of_token += static_cast<int>(peers.count(other.slot));
  }
  const int of_run = static_cast<int>(undecided.size());
  const auto refuse = [&](const std::string& whose, int count) {
    return RefuseForNow(
        Code::kResourceExhausted, "TOO_MANY_CONTRIBUTIONS",
        absl::StrCat(whose, " ", count, " undecided contributions of fragment ",
                     key.fragment, "; push again when one is decided"),
        absl::Seconds(1));
  };
  if (of_slot >= kUndecidedMax) {
    return refuse(absl::StrCat("slot ", key.slot, " has"), of_slot);
  }
  // Others cannot take a slot's first one.
  if (of_slot == 0) return absl::OkStatus();
  if (!peers.empty() &&
      of_token >= TokenUndecidedMax(static_cast<int>(peers.size()))) {
    return refuse(absl::StrCat("the ", peers.size(), " islands of the token of "
                               "slot ", key.slot, " have"),
                  of_token);
  }
  if (plan_.slot_count() > 0 &&
      of_run >= RunUndecidedMax(plan_.slot_count())) {
    return refuse("the run has", of_run);
  }
  return absl::OkStatus();
}

absl::Status ShardMachine::CheckServes() const {
  if (has_stopped()) {
    return Refuse(Code::kUnavailable, "SHARD_STOPPED",
                  absl::StrCat("the shard stopped: ", fault(),
                               "; its operator must look at it"));
  }
  if (!has_plan_) {
    return Refuse(Code::kUnavailable, "STARTING",
                  "this server has no plan yet: it is starting; call again");
  }
  return absl::OkStatus();
}

absl::Status ShardMachine::NoBlock(int32_t fragment) const {
  return Refuse(Code::kInvalidArgument, "NO_SUCH_FRAGMENT",
                absl::StrCat("shard ", shape_.shard,
                             " holds no block of fragment ", fragment,
                             "; cut the fragment by the layout"));
}

absl::Status ShardMachine::CheckRun(absl::string_view run_uid) const {
  return CheckSameRun(run_uid_, run_uid);
}

absl::StatusOr<bool> ShardMachine::AdmitImport(
    const v1::ImportHeader& header) const {
  RETURN_IF_ERROR(CheckRun(header.run_uid()));
  RETURN_IF_ERROR(CheckServes());
  RETURN_IF_ERROR(
      CheckPlace(0, 0, header.layout_fingerprint(), header.shard()));
  if (!shape_.import) {
    return Refuse(
        Code::kInvalidArgument, "RUN_DOES_NOT_IMPORT",
        "the run makes its version 0 itself (init.import is not set); create a "
        "run that imports");
  }
  const int32_t f = header.fragment();
  if (f < 0 || f >= static_cast<int32_t>(fragments_.size()) ||
      !shape_.fragments[f].holds) {
    return NoBlock(f);
  }
  if (fragments_[f].version >= 0) {
    if (Digest128::FromProto(header.digest()) ==
        fragments_[f].version0_digest) {
      return true;
    }
    return Refuse(
        Code::kAlreadyExists, "OTHER_MODEL",
        absl::StrCat("version 0 of fragment ", f,
                     " is here with other content (digest ",
                     fragments_[f].version0_digest.ToHex(),
                     "); create another run for this model"));
  }
  if (plan_.run_state() == v1::RUN_STATE_CANCELLED) {
    return Refuse(Code::kFailedPrecondition, "RUN_ENDED",
                  "the run is cancelled; create another");
  }
  return false;
}

absl::Status ShardMachine::AdmitPush(const v1::PushHeader& header,
                                     absl::string_view session_sha256) const {
  RETURN_IF_ERROR(CheckRun(header.run_uid()));
  RETURN_IF_ERROR(CheckServes());
  const v1::ContributionKey& key = header.info().key();
  RETURN_IF_ERROR(
      CheckPlace(0, 0, header.layout_fingerprint(), header.shard()));
  // 0 is no wildcard here: run_epoch is a part of the key.
  RETURN_IF_ERROR(CheckEpoch("run_epoch", key.run_epoch(), run_epoch_));
  RETURN_IF_ERROR(CheckEpoch("placement_epoch", header.placement_epoch(),
                             plan_.placement_epoch()));
  if (plan_.run_state() != v1::RUN_STATE_ACTIVE &&
      plan_.run_state() != v1::RUN_STATE_PAUSED) {
    return Refuse(
        Code::kFailedPrecondition, "RUN_NOT_ACTIVE",
        absl::StrCat("the run is ", v1::RunState_Name(plan_.run_state()),
                     " and takes no contributions; wait for the plan"));
  }
  RETURN_IF_ERROR(
      AdmitMember(key.slot(), header.island_epoch(), session_sha256));
  return AdmitContribution(header.info());
}

}  // namespace atl::server
