#include "server/store/sum_store.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/store/shard_files.h"

namespace atl::server {
namespace {

// One for the version that is being made durable, one for the next.
constexpr size_t kSpareSumsMax = 2;

}  // namespace

absl::Status SumStore::Recover(absl::Span<const PreparedFact> unmade) {
  const std::string directory = context_.names.sums();
  RETURN_IF_ERROR(context_.fs.CreateDirectories(directory));
  std::set<std::string> wanted;
  for (const PreparedFact& fact : unmade) {
    ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> sum, Open(fact));
    if (sum == nullptr) continue;
    wanted.insert(sum->path());
    Put(fact.fragment, fact.version + 1, std::move(sum));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(context_.fs, directory, "sums"));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (wanted.count(path) == 0) RETURN_IF_ERROR(context_.fs.Remove(path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<VersionFile>> SumStore::Open(
    const PreparedFact& fact) {
  const int64_t version = fact.version + 1;
  const std::string path = context_.names.SumPath(fact.fragment, version);
  // VersionFile::Open would create the file.
  if (!context_.fs.Exists(path)) return std::shared_ptr<VersionFile>();
  absl::StatusOr<std::shared_ptr<VersionFile>> opened =
      VersionFile::Open(context_.fs, path, context_.ranges[fact.fragment],
                        /*state_count=*/0, /*writable=*/true);
  if (absl::IsUnavailable(opened.status())) return opened.status();
  if (!opened.ok()) return std::shared_ptr<VersionFile>();
  const VersionIdentity& identity = (*opened)->identity();
  const bool is_it = identity.run_id == context_.run.run_id() &&
                     identity.shard == context_.shard &&
                     identity.version == version &&
                     identity.digest == fact.digest &&
                     identity.replica_digest == fact.replica_digest;
  return is_it ? *std::move(opened) : nullptr;
}

absl::StatusOr<std::shared_ptr<VersionFile>> SumStore::New(int32_t fragment,
                                                           int64_t version) {
  const std::string path = context_.names.SumPath(fragment, version);
  std::shared_ptr<VersionFile> spare;
  std::shared_ptr<VersionFile> same_path;
  MutexLock making(&making_mutex_);
  {
    MutexLock lock(&mutex_);
    auto& spares = spares_[fragment];
    for (auto it = spares.begin(); it != spares.end();) {
      // An earlier merge may still hold a spare; it gives the file up later.
      std::shared_ptr<VersionFile>* const to =
          (*it).use_count() == 1 && spare == nullptr ? &spare
          : (*it)->path() == path                    ? &same_path
                                                     : nullptr;
      if (to == nullptr) {
        ++it;
        continue;
      }
      *to = std::move(*it);
      it = spares.erase(it);
    }
  }
  if (same_path != nullptr) context_.fs.Remove(path).IgnoreError();
  if (spare != nullptr && !spare->Reuse(context_.fs, path)) {
    context_.fs.Remove(spare->path()).IgnoreError();
    spare = nullptr;
  }
  if (spare == nullptr) {
    ASSIGN_OR_RETURN(
        spare, VersionFile::Create(context_.fs, path, context_.ranges[fragment],
                                   /*state_count=*/0));
  }
  made_[fragment] = spare.get();
  return spare;
}

void SumStore::GiveUp(int32_t fragment, int64_t version,
                      const std::shared_ptr<VersionFile>& sum) {
  if (sum == nullptr) return;
  // While the lock is held, no file is made under the removed name.
  MutexLock making(&making_mutex_);
  if (made_[fragment] != sum.get() || Find(fragment, version) == sum) return;
  made_.erase(fragment);
  // If the removal fails, the next start removes the file.
  context_.fs.Remove(sum->path()).IgnoreError();
}

void SumStore::Put(int32_t fragment, int64_t version,
                   std::shared_ptr<VersionFile> sum) {
  MutexLock lock(&mutex_);
  sums_[{fragment, version}] = std::move(sum);
}

void SumStore::TakeBack(int32_t fragment, int64_t version) {
  MutexLock lock(&mutex_);
  sums_.erase({fragment, version});
}

std::shared_ptr<VersionFile> SumStore::Find(int32_t fragment,
                                            int64_t version) const {
  MutexLock lock(&mutex_);
  const auto it = sums_.find({fragment, version});
  return it == sums_.end() ? nullptr : it->second;
}

void SumStore::Recycle(int32_t fragment, int64_t version) {
  std::shared_ptr<VersionFile> sum;
  {
    MutexLock lock(&mutex_);
    const auto it = sums_.find({fragment, version});
    if (it == sums_.end()) return;
    sum = std::move(it->second);
    sums_.erase(it);
    auto& spares = spares_[fragment];
    if (spares.size() < kSpareSumsMax) {
      spares.push_back(std::move(sum));
      return;
    }
  }
  context_.fs.Remove(sum->path()).IgnoreError();
}

void SumStore::DropSpares() {
  std::map<int32_t, std::vector<std::shared_ptr<VersionFile>>> spares;
  MutexLock making(&making_mutex_);
  {
    MutexLock lock(&mutex_);
    spares.swap(spares_);
  }
  for (const auto& [fragment, files] : spares) {
    for (const auto& file : files) {
      context_.fs.Remove(file->path()).IgnoreError();
    }
  }
}

}  // namespace atl::server
