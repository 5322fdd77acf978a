// Level ISLAND: what a version is made from, kept until the version is durable.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/store/run_store.h"

namespace atl::server {
namespace {

// Those of the version before, which is being made durable, and of the next.
constexpr size_t kSpareSumsMax = 2;

}  // namespace

std::string RunStore::SumPath(int32_t fragment, int64_t version) const {
  return absl::StrCat(names_.directory(), "/sums/f", fragment, "-v", version,
                      ".sum");
}

absl::StatusOr<std::shared_ptr<VersionFile>> RunStore::NewSum(
    int32_t fragment, int64_t version) {
  const std::string path = SumPath(fragment, version);
  std::shared_ptr<VersionFile> spare;
  std::shared_ptr<VersionFile> in_its_place;
  MutexLock making(&making_mutex_);
  {
    MutexLock lock(&mutex_);
    auto& spares = spare_sums_[fragment];
    for (auto it = spares.begin(); it != spares.end();) {
      // Who gathered into one may be there still, and gives it up when it ends.
      std::shared_ptr<VersionFile>* const to =
          (*it).use_count() == 1 && spare == nullptr ? &spare
          : (*it)->path() == path                    ? &in_its_place
                                                     : nullptr;
      if (to == nullptr) {
        ++it;
        continue;
      }
      *to = std::move(*it);
      it = spares.erase(it);
    }
  }
  if (in_its_place != nullptr) fs_.Remove(path).IgnoreError();
  if (spare != nullptr && !spare->Reuse(fs_, path)) {
    fs_.Remove(spare->path()).IgnoreError();
    spare = nullptr;
  }
  if (spare == nullptr) {
    ASSIGN_OR_RETURN(spare, VersionFile::Create(fs_, path, ranges_[fragment],
                                                /*state_count=*/0));
  }
  made_sums_[fragment] = spare.get();
  return spare;
}

absl::Status RunStore::PublishPrepared(const PreparedFact& prepared,
                                       std::shared_ptr<VersionFile> file,
                                       std::shared_ptr<VersionFile> sum) {
  const int64_t version = prepared.version + 1;
  const VersionIdentity identity = {run_.run_id(),   shard_,
                                    version,         0,
                                    prepared.digest, prepared.replica_digest};
  if (sum != nullptr) {
    RETURN_IF_ERROR(sum->WriteHeader(identity));
    MutexLock lock(&mutex_);
    sums_[{prepared.fragment, version}] = std::move(sum);
  } else {
    RETURN_IF_ERROR(file->WriteHeader(identity));
  }
  PublishVersion(
      prepared.fragment, version,
      {std::move(file), 0, prepared.digest, prepared.replica_digest});
  return absl::OkStatus();
}

void RunStore::RecycleSum(int32_t fragment, int64_t version) {
  std::shared_ptr<VersionFile> sum;
  {
    MutexLock lock(&mutex_);
    const auto it = sums_.find({fragment, version});
    if (it == sums_.end()) return;
    sum = std::move(it->second);
    sums_.erase(it);
    auto& spares = spare_sums_[fragment];
    if (spares.size() < kSpareSumsMax) {
      spares.push_back(std::move(sum));
      return;
    }
  }
  fs_.Remove(sum->path()).IgnoreError();
}

absl::StatusOr<std::shared_ptr<VersionFile>> RunStore::OpenSum(
    const PreparedFact& fact) {
  const int32_t f = fact.fragment;
  const int64_t version = fact.version + 1;
  {
    MutexLock lock(&mutex_);
    // Older than what is persisted, or whole in its own file.
    if (ranges_[f].empty() || prepared_here_.count(f) ||
        state_.fragments(f).version() != fact.version) {
      return std::shared_ptr<VersionFile>();
    }
  }
  // To open it for writing would make it.
  if (!fs_.Exists(SumPath(f, version))) return std::shared_ptr<VersionFile>();
  absl::StatusOr<std::unique_ptr<VersionFile>> opened =
      VersionFile::Open(fs_, SumPath(f, version), ranges_[f],
                        /*state_count=*/0, /*writable=*/true);
  if (absl::IsUnavailable(opened.status())) return opened.status();
  if (!opened.ok()) return std::shared_ptr<VersionFile>();
  const VersionIdentity& identity = (*opened)->identity();
  const bool is_it = identity.run_id == run_.run_id() &&
                     identity.shard == shard_ && identity.version == version &&
                     identity.digest == fact.digest &&
                     identity.replica_digest == fact.replica_digest;
  if (!is_it) return std::shared_ptr<VersionFile>();
  return std::shared_ptr<VersionFile>(*std::move(opened));
}

absl::Status RunStore::RecoverSums() {
  if (!merges_live_) return absl::OkStatus();
  const std::string directory = absl::StrCat(names_.directory(), "/sums");
  RETURN_IF_ERROR(fs_.CreateDirectories(directory));
  std::vector<PreparedFact> prepared;
  {
    MutexLock lock(&mutex_);
    prepared = prepared_;
  }
  std::set<std::string> wanted;
  for (const PreparedFact& fact : prepared) {
    ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> sum, OpenSum(fact));
    if (sum == nullptr) continue;
    wanted.insert(sum->path());
    MutexLock lock(&mutex_);
    sums_[{fact.fragment, fact.version + 1}] = std::move(sum);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(directory));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (wanted.count(path) == 0) RETURN_IF_ERROR(fs_.Remove(path));
  }
  return absl::OkStatus();
}

std::vector<RunStore::Unmade> RunStore::UnmadeVersions() const {
  std::vector<Unmade> unmade;
  MutexLock lock(&mutex_);
  for (const PreparedFact& fact : prepared_) {
    const auto it = sums_.find({fact.fragment, fact.version + 1});
    if (it == sums_.end() || versions_.count(it->first)) continue;
    unmade.push_back({fact, it->second});
  }
  return unmade;
}

void RunStore::AdoptUnmade(const Unmade& unmade,
                           std::shared_ptr<VersionFile> file) {
  const PreparedFact& fact = unmade.prepared;
  PublishVersion(fact.fragment, fact.version + 1,
                 {std::move(file), 0, fact.digest, fact.replica_digest});
  MutexLock lock(&mutex_);
  prepared_here_.insert(fact.fragment);
}

}  // namespace atl::server
