// Opens what pulls read.

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/shard/shard.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

}  // namespace

absl::StatusOr<Shard::PullSource> Shard::OpenPull(
    const v1::PullParametersRequest& request, const Reader& reader) {
  const int32_t fragment = request.fragment();
  PullSource source;
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(machine_.CheckRun(request.run_uid()));
    RETURN_IF_ERROR(
        machine_.CheckPlace(request.run_epoch(), request.placement_epoch(),
                            request.layout_fingerprint(), request.shard()));
    if (fragment < 0 || fragment >= store_->layout().fragment_count() ||
        store_->range(fragment).empty()) {
      return Refuse(Code::kInvalidArgument, "NO_SUCH_FRAGMENT",
                    absl::StrCat("shard ", store_->shard(),
                                 " holds no block of fragment ", fragment,
                                 "; cut by the layout"));
    }
    const int64_t newest = machine_.version(fragment);
    if (newest < 0) {
      return Refuse(Code::kUnavailable, "NOT_STARTED",
                    "version 0 is not made yet; call again");
    }
    source.version = request.version() == -1 ? newest : request.version();
    if (source.version < 0) {
      return Refuse(
          Code::kInvalidArgument, "INVALID_FIELDS",
          absl::StrCat("version ", source.version, " is neither -1 nor >= 0"));
    }
    if (source.version > newest) {
      return Refuse(
          Code::kFailedPrecondition, "VERSION_NOT_HERE",
          absl::StrCat("version ", source.version, " of fragment ", fragment,
                       " does not exist here yet; the newest is ", newest,
                       "; call again, or fetch the plan"));
    }
  }
  // Registered before Find, so that a release knows every reader.
  source.reading = readers_.Begin(fragment, source.version, reader);
  RETURN_IF_ERROR(CheckOpen());
  std::optional<HeldVersion> held =
      store_->versions().Find(fragment, source.version);
  if (!held) {
    return VersionReleased(fragment, source.version, "is no longer held");
  }
  source.held = *std::move(held);
  RETURN_IF_ERROR(ChooseContent(request, source));
  return source;
}

absl::Status Shard::ChooseContent(const v1::PullParametersRequest& request,
                                  PullSource& source) {
  source.digest = source.held.digest;
  if (request.content() == v1::PULL_CONTENT_UNSPECIFIED ||
      request.content() == v1::PULL_CONTENT_PARAMETERS) {
    return absl::OkStatus();
  }
  if (request.content() != v1::PULL_CONTENT_REPLICA) {
    return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                  "content must be PARAMETERS or REPLICA");
  }
  if (request.has_from_version() &&
      (request.from_version() < 0 || request.from_version() > source.version)) {
    return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                  absl::StrCat("from_version ", request.from_version(),
                               " is not in [0, ", source.version, "]"));
  }
  source.content = v1::PULL_CONTENT_REPLICA;
  source.array = store_->versions().replica_array();
  if (store_->versions().deltas() == nullptr) return absl::OkStatus();
  source.digest = source.held.replica_digest;
  if (!request.has_from_version()) return absl::OkStatus();
  source.chain = store_->versions().deltas()->Chain(
      request.fragment(), request.from_version(), source.version);
  if (source.chain.empty()) return absl::OkStatus();
  source.content = v1::PULL_CONTENT_CHAIN;
  source.from_version = request.from_version();
  return absl::OkStatus();
}

absl::StatusOr<Shard::PullSource> Shard::OpenKept(
    const v1::PullKeptRequest& request, const Reader& reader) {
  PullSource source;
  if (request.has_state()) {
    if (request.state().version() < 0) {
      return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                    "state.version is negative");
    }
    v1::PullParametersRequest version;
    version.set_fragment(request.fragment());
    version.set_version(request.state().version());
    version.set_layout_fingerprint(request.layout_fingerprint());
    version.set_placement_epoch(request.placement_epoch());
    version.set_shard(request.shard());
    ASSIGN_OR_RETURN(source, OpenPull(version, reader));
    const int32_t array = request.state().array();
    if (array < 0 || array >= optimizer_->state_count()) {
      return Refuse(
          Code::kInvalidArgument, "INVALID_FIELDS",
          absl::StrCat("state.array is ", array, ", and ", optimizer_->name(),
                       " has ", optimizer_->state_count(), " arrays"));
    }
    source.array = 1 + array;
    source.is_state = true;
    return source;
  }
  const auto key = ContributionKey::FromProto(request.contribution());
  std::string given_up;
  bool is_undecided;  // Asked before the store: it may be kept by then.
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(machine_.CheckPlace(0, request.placement_epoch(),
                                        request.layout_fingerprint(),
                                        request.shard()));
    given_up = machine_.given_up();
    is_undecided = machine_.Knows(key);
  }
  const int32_t fragment = request.fragment();
  if (!request.has_contribution() || key.is_import() || fragment < 0 ||
      fragment >= store_->layout().fragment_count() ||
      key.fragment != fragment || store_->range(fragment).empty()) {
    return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                  absl::StrCat("the request names neither a state nor a "
                               "contribution to a fragment of which shard ",
                               store_->shard(), " holds blocks"));
  }
  source.reading = readers_.BeginKept(key, reader);
  RETURN_IF_ERROR(CheckOpen());
  absl::StatusOr<KeptContribution> kept = store_->kept().Find(key);
  if (absl::IsNotFound(kept.status())) {
    if (is_undecided) {
      return Refuse(Code::kUnavailable, "NOT_PERSISTED",
                    absl::StrCat("the commit of ", key.ToString(),
                                 " is not persisted here yet; call again"));
    }
    return NotKept(key, given_up);
  }
  RETURN_IF_ERROR(kept.status());
  source.kept = std::move(kept->contribution);
  source.digest = kept->digest;
  source.replica_digest = kept->replica_digest;
  return source;
}

absl::Status Shard::NotKept(const ContributionKey& key,
                            const std::string& given_up) const {
  return Refuse(
      Code::kOutOfRange, "NOT_KEPT",
      absl::StrCat(key.ToString(), " is not kept on shard ", store_->shard(),
                   given_up.empty() ? ": no pin keeps it"
                                    : absl::StrCat(" any longer: ", given_up)));
}

void Shard::OnDamagedDelta(int32_t fragment, int64_t version,
                           const absl::Status& damage) {
  LOG(ERROR) << "run " << store_->run().run_id() << ": the delta of version "
             << version << " of fragment " << fragment
             << " cannot be read, islands get the whole replica: "
             << damage.ToString();
  store_->versions().deltas()->Remove(fragment, version);
}

absl::Status Shard::OnDamagedVersion(int32_t fragment, int64_t version,
                                     const absl::Status& damage) {
  LOG(ERROR) << "run " << store_->run().run_id() << ": version " << version
             << " of fragment " << fragment
             << " cannot be read: " << damage.ToString();
  absl::Status told = absl::DataLossError(absl::StrCat(
      damage.message(), "; ask for the newest version or another checkpoint"));
  {
    MutexLock lock(&mutex_);
    machine_.OnVersionDamaged(fragment, version, damage.message());
    if (machine_.version(fragment) == version) {
      told = machine_.CheckServes();
    } else if (machine_.Holds(fragment, version)) {
      NoteBlockedReason(
          {BlockedReasons::Cause::kReadVersion, fragment, version, ""},
          absl::StrCat("read fragment ", fragment, " version ", version),
          damage);
    }
  }
  Advance();
  Changed();
  return told;
}

}  // namespace atl::server
