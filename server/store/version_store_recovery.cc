// Recovery of a shard's versions: the records, then the files that they name.
// All other files are removed.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/records/parse_record.h"
#include "server/store/shard_files.h"
#include "server/store/version_store.h"

namespace atl::server {
namespace {

// Fragment and version of the file fF-vV.ver or fF-vV.ver.tmp; none for other
// names.
std::optional<std::pair<int32_t, int64_t>> ParseName(const std::string& name) {
  long long fragment = -1, version = -1;
  char end = 0;
  if (std::sscanf(name.c_str(), "f%lld-v%lld.ve%c", &fragment, &version,
                  &end) != 3 ||
      end != 'r' || fragment < 0 ||
      fragment > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  return std::pair<int32_t, int64_t>(static_cast<int32_t>(fragment), version);
}

}  // namespace

absl::Status VersionStore::Recover() {
  RETURN_IF_ERROR(RecoverState());
  RETURN_IF_ERROR(RecoverFiles());
  return RecoverDeltas();
}

absl::Status VersionStore::RecoverDamaged() {
  RETURN_IF_ERROR(context_.records.Get("state").status());
  RETURN_IF_ERROR(RecoverState());
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   context_.fs.List(context_.names.versions()));
  for (const std::string& name : names) {
    const std::optional<std::pair<int32_t, int64_t>> place = ParseName(name);
    if (!place || place->first >= context_.layout.fragment_count() ||
        !absl::EndsWith(name, ".ver")) {
      continue;
    }
    const auto [f, version] = *place;
    absl::StatusOr<std::shared_ptr<VersionFile>> file = OpenVersion(
        absl::StrCat(context_.names.versions(), "/", name), f, version);
    // Without a commit_seq it was prepared only.
    if (!file.ok() || (version > 0 && (*file)->identity().commit_seq == 0)) {
      continue;
    }
    const VersionIdentity& identity = (*file)->identity();
    Publish(
        f, version,
        {*file, identity.commit_seq, identity.digest, identity.replica_digest});
  }
  // The newest one may be newer than this STATE, or older if its file is lost.
  MutexLock lock(&mutex_);
  for (const ShardRange& range : context_.ranges) {
    if (range.empty()) continue;
    int64_t newest = -1;
    for (const auto& [place, held] : versions_) {
      if (place.first == range.fragment()) newest = place.second;
    }
    state_.mutable_fragments(range.fragment())->set_version(newest);
  }
  return absl::OkStatus();
}

absl::Status VersionStore::RecoverState() {
  const std::string name = "state";
  const absl::StatusOr<std::string> value = context_.records.Get(name);
  if (value.ok()) {
    ASSIGN_OR_RETURN(records::StateRecord state,
                     ParseRecord<records::StateRecord>({name, *value}));
    if (state.fragments_size() != context_.layout.fragment_count()) {
      return absl::DataLossError(
          absl::StrCat("record ", name, " does not fit the layout"));
    }
    MutexLock lock(&mutex_);
    state_ = std::move(state);
  } else if (absl::IsNotFound(value.status())) {
    MutexLock lock(&mutex_);
    state_.set_run_epoch(context_.run.run_epoch());
    for (const ShardRange& range : context_.ranges) {
      // A fragment of which the shard holds no block is at version 0.
      state_.add_fragments()->set_version(range.empty() ? 0 : -1);
    }
  } else {
    return value.status();
  }
  ASSIGN_OR_RETURN(
      const std::vector<RecordStore::Record> prepared,
      context_.records.Scan("prepared/"));
  for (const RecordStore::Record& record : prepared) {
    ASSIGN_OR_RETURN(const records::PreparedRecord fact,
                     ParseRecord<records::PreparedRecord>(record));
    if (fact.fragment() < 0 ||
        fact.fragment() >= context_.layout.fragment_count()) {
      return absl::DataLossError(
          absl::StrCat("record ", record.first, " does not fit the layout"));
    }
    MutexLock lock(&mutex_);
    prepared_.push_back({fact.fragment(), fact.version(), fact.attempt(),
                         Digest128::FromProto(fact.digest()), fact.finite(),
                         fact.norm_squared(),
                         Digest128::FromProto(fact.replica_digest())});
  }
  return absl::OkStatus();
}

absl::Status VersionStore::RecoverFiles() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(context_.fs, context_.names.versions(),
                                  "versions"));
  records::StateRecord state;
  {
    MutexLock lock(&mutex_);
    state = state_;
  }
  for (const std::string& name : names) {
    RETURN_IF_ERROR(RecoverFile(name, state));
  }
  return CheckDurable(state);
}

absl::Status VersionStore::RecoverFile(const std::string& name,
                                       const records::StateRecord& state) {
  const std::string path = absl::StrCat(context_.names.versions(), "/", name);
  const std::optional<std::pair<int32_t, int64_t>> place = ParseName(name);
  const bool named =
      place && place->first < context_.layout.fragment_count();
  const int32_t f = place ? place->first : -1;
  const int64_t version = place ? place->second : -1;
  // A version that STATE does not name may be prepared. Its contributions may
  // be gone.
  if (context_.merges_live && named &&
      version == state.fragments(f).version() + 1) {
    ASSIGN_OR_RETURN(const bool adopted, AdoptPrepared(path, f, version));
    if (adopted) return absl::OkStatus();
  }
  // A crash left it incomplete, or renamed it before STATE was written.
  if (!named || !absl::EndsWith(name, ".ver") ||
      version > state.fragments(f).version()) {
    return context_.fs.Remove(path);
  }
  absl::StatusOr<std::shared_ptr<VersionFile>> opened =
      OpenVersion(path, f, version);
  if (!opened.ok()) {
    if (version == state.fragments(f).version()) return opened.status();
    // No version is made from it any longer. Readers are told that it is not
    // held. The file stays, so that an operator can look at it.
    LOG(ERROR) << "run " << context_.run.run_id()
               << ": an old version is lost: " << opened.status().ToString();
    return absl::OkStatus();
  }
  const std::shared_ptr<VersionFile> file = *std::move(opened);
  const VersionIdentity& identity = file->identity();
  Publish(
      f, version,
      {file, identity.commit_seq, identity.digest, identity.replica_digest});
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<VersionFile>> VersionStore::OpenVersion(
    const std::string& path, int32_t fragment, int64_t version) const {
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> file,
                   VersionFile::Open(context_.fs, path,
                                     context_.ranges[fragment], state_count_));
  const VersionIdentity& found = file->identity();
  if (found.run_id != context_.run.run_id() ||
      found.shard != context_.shard || found.version != version) {
    return absl::DataLossError(
        absl::StrCat(path, " is another version than its name says"));
  }
  return file;
}

absl::Status VersionStore::CheckDurable(
    const records::StateRecord& state) const {
  for (int32_t f = 0; f < context_.layout.fragment_count(); ++f) {
    const records::FragmentState& fragment = state.fragments(f);
    if (context_.ranges[f].empty() || fragment.version() < 0) continue;
    const std::string path = context_.names.VersionPath(f, fragment.version());
    const std::optional<HeldVersion> held = Find(f, fragment.version());
    if (!held) return absl::DataLossError(absl::StrCat(path, " is missing"));
    if (held->digest != Digest128::FromProto(fragment.digest())) {
      return absl::DataLossError(
          absl::StrCat(path, " has another digest than its record"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> VersionStore::AdoptPrepared(const std::string& path,
                                                 int32_t fragment,
                                                 int64_t version) {
  std::optional<PreparedFact> recorded;
  {
    MutexLock lock(&mutex_);
    for (const PreparedFact& fact : prepared_) {
      if (fact.fragment == fragment && fact.version + 1 == version) {
        recorded = fact;
      }
    }
  }
  const ShardRange& range = context_.ranges[fragment];
  if (!recorded || range.empty()) return false;
  absl::StatusOr<std::unique_ptr<VersionFile>> opened = VersionFile::Open(
      context_.fs, path, range, state_count_, /*writable=*/true);
  if (absl::IsUnavailable(opened.status())) return opened.status();
  if (!opened.ok()) return false;
  const VersionIdentity& identity = (*opened)->identity();
  if (identity.run_id != context_.run.run_id() ||
      identity.shard != context_.shard || identity.version != version ||
      identity.digest != recorded->digest ||
      identity.replica_digest != recorded->replica_digest) {
    return false;
  }
  // Every block is read: after a power loss some may not be on the disk.
  Digest128 digest, replica_digest;
  std::vector<float> elements;
  for (int64_t b = range.blocks().begin; b < range.blocks().end; ++b) {
    const IndexRange block = {b, b + 1};
    elements.resize(range.ElementCount(block));
    for (int array = 0; array <= state_count_; ++array) {
      const absl::Status read = (*opened)->Read(array, block, elements.data());
      if ((*opened)->disk_has_failed()) {
        return absl::UnavailableError(read.message());
      }
      if (!read.ok()) return false;
      if (array == 0) digest += BlockDigest(b, elements);
    }
    // The replica is the last array.
    if (has_replica()) replica_digest += BlockDigest(b, elements);
  }
  if (digest != recorded->digest ||
      replica_digest != recorded->replica_digest) {
    return false;
  }
  Publish(fragment, version, {*std::move(opened), 0, digest, replica_digest});
  MutexLock lock(&mutex_);
  prepared_here_.insert(fragment);
  return true;
}

}  // namespace atl::server
