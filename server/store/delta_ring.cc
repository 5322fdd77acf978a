#include "server/store/delta_ring.h"

#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/shard_files.h"

namespace atl::server {
namespace {

// Fragment and version of "fF-vV.dlt".
std::optional<std::pair<int64_t, int64_t>> ParseDeltaName(
    const std::string& name) {
  long long fragment = -1, version = -1;
  char end = 0;
  if (std::sscanf(name.c_str(), "f%lld-v%lld.dl%c", &fragment, &version,
                  &end) != 3 ||
      end != 't' || !absl::EndsWith(name, ".dlt")) {
    return std::nullopt;
  }
  return std::make_pair(fragment, version);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeltaRing>> DeltaRing::Open(
    FileSystem& fs, const std::string& directory, const Owner& owner,
    const codec::Codec& codec, const std::vector<ShardRange>& ranges,
    absl::Span<const int64_t> versions, std::shared_ptr<ImagePool> images) {
  std::unique_ptr<DeltaRing> ring = absl::WrapUnique(new DeltaRing(
      fs, directory, owner, codec, ranges, std::move(images)));
  RETURN_IF_ERROR(ring->Recover(versions));
  return ring;
}

absl::Status DeltaRing::Clear(FileSystem& fs, const std::string& directory) {
  if (!fs.Exists(directory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(fs, directory, "deltas"));
  for (const std::string& name : names) {
    RETURN_IF_ERROR(fs.Remove(absl::StrCat(directory, "/", name)));
  }
  return fs.SyncDirectory(directory);
}

DeltaRing::DeltaRing(FileSystem& fs, const std::string& directory,
                     const Owner& owner, const codec::Codec& codec,
                     const std::vector<ShardRange>& ranges,
                     std::shared_ptr<ImagePool> images)
    : fs_(fs),
      directory_(directory),
      owner_(owner),
      images_(std::move(images)) {
  for (const ShardRange& range : ranges) {
    Fragment fragment = {
        EncodedLayout(range.layout(), range.fragment(), codec), range.blocks()};
    fragment.kept_count = DeltasKept(
        range.element_count() * static_cast<int64_t>(sizeof(float)),
        fragment.layout.ByteCount(range.blocks()));
    fragments_.push_back(std::move(fragment));
  }
}

std::string DeltaRing::Path(int32_t fragment, int64_t version) const {
  return absl::StrCat(directory_, "/f", fragment, "-v", version, ".dlt");
}

absl::Status DeltaRing::Recover(absl::Span<const int64_t> versions) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(fs_, directory_, "deltas"));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory_, "/", name);
    const auto place = ParseDeltaName(name);
    // Incomplete files, deltas of commits that are not persisted, and deltas
    // that are too old for the ring.
    if (!place || place->first < 0 ||
        place->first >= static_cast<int64_t>(fragments_.size()) ||
        place->second > versions[place->first] ||
        place->second <=
            versions[place->first] - kept_count(place->first)) {
      RETURN_IF_ERROR(fs_.Remove(path));
      continue;
    }
    const int32_t f = static_cast<int32_t>(place->first);
    absl::StatusOr<std::shared_ptr<DeltaFile>> opened =
        DeltaFile::Open(fs_, path, fragments_[f].layout, fragments_[f].blocks);
    if (!opened.ok() || (*opened)->identity().run_id != owner_.run_id ||
        (*opened)->identity().shard != owner_.shard ||
        (*opened)->identity().version != place->second) {
      LOG(WARNING) << "run " << owner_.run_id << ": " << path
                   << " is damaged: islands get the whole replica instead";
      RETURN_IF_ERROR(fs_.Remove(path));
      continue;
    }
    Publish(f, place->second, *std::move(opened));
  }
  MutexLock lock(&mutex_);
  for (size_t f = 0; f < fragments_.size(); ++f) {
    committed_[static_cast<int32_t>(f)] = versions[f];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<DeltaFile>> DeltaRing::New(int32_t fragment,
                                                          int64_t version) {
  const std::string path = absl::StrCat(Path(fragment, version), ".tmp");
  const Fragment& of = fragments_[fragment];
  std::shared_ptr<DeltaFile> spare;
  {
    MutexLock lock(&mutex_);
    const auto it = spares_.find(fragment);
    if (it != spares_.end()) {
      spare = std::move(it->second);
      spares_.erase(it);
    }
  }
  VersionImage image;
  if (images_ != nullptr) {
    {
      // Pulls of these deltas read their files from now on.
      MutexLock lock(&mutex_);
      for (auto& [place, delta] : deltas_) {
        if (place.first == fragment) delta->DropImage();
      }
    }
    image =
        images_->Take(DeltaFile::ImageElementCount(of.layout, of.blocks));
  }
  if (spare != nullptr) {
    if (spare->Reuse(fs_, path, image)) return spare;
    fs_.Remove(spare->path()).IgnoreError();
  }
  return DeltaFile::Create(fs_, path, of.layout, of.blocks, std::move(image));
}

void DeltaRing::Publish(int32_t fragment, int64_t version,
                        std::shared_ptr<DeltaFile> file) {
  {
    MutexLock lock(&mutex_);
    std::swap(deltas_[{fragment, version}], file);
  }
  // `file` is the delta of an earlier attempt now: closed outside the lock.
  file.reset();
}

void DeltaRing::DropOldImages(int32_t fragment) {
  const int64_t committed = committed_[fragment];
  for (auto it = deltas_.lower_bound({fragment, 0});
       it != deltas_.end() && it->first < Place(fragment, committed); ++it) {
    it->second->DropImage();
  }
}

void DeltaRing::Commit(int32_t fragment, int64_t version) {
  MutexLock lock(&mutex_);
  committed_[fragment] = version;
  DropOldImages(fragment);
}

void DeltaRing::Persist(int32_t fragment, int64_t version) {
  std::shared_ptr<DeltaFile> file;
  {
    MutexLock lock(&mutex_);
    const auto it = deltas_.find({fragment, version});
    if (it != deltas_.end()) file = it->second;
  }
  if (file != nullptr) {
    absl::Status written =
        file->Seal({owner_.run_id, owner_.shard, version});
    const std::string path = Path(fragment, version);
    if (written.ok()) written = fs_.Rename(file->path(), path);
    if (written.ok()) {
      file->set_path(path);
      file.reset();
    } else {
      LOG(WARNING) << "run " << owner_.run_id << ": " << path
                   << " is not kept: " << written.ToString();
      file.reset();
      Remove(fragment, version);
    }
  }
  std::vector<std::shared_ptr<DeltaFile>> old;
  {
    MutexLock lock(&mutex_);
    DropOldImages(fragment);
    const int64_t kept_from = version - kept_count(fragment) + 1;
    for (auto it = deltas_.lower_bound({fragment, 0});
         it != deltas_.end() && it->first < Place(fragment, kept_from);) {
      old.push_back(std::move(it->second));
      it = deltas_.erase(it);
    }
  }
  for (std::shared_ptr<DeltaFile>& delta : old) {
    Retire(fragment, std::move(delta));
  }
}

void DeltaRing::Remove(int32_t fragment, int64_t version) {
  std::shared_ptr<DeltaFile> file;
  {
    MutexLock lock(&mutex_);
    const auto it = deltas_.find({fragment, version});
    if (it == deltas_.end()) return;
    file = std::move(it->second);
    deltas_.erase(it);
  }
  Retire(fragment, std::move(file));
}

void DeltaRing::Retire(int32_t fragment, std::shared_ptr<DeltaFile> file) {
  // The map no longer has the file, so no new user can appear.
  bool is_ours = file.use_count() == 1;
  if (is_ours) {
    MutexLock lock(&mutex_);
    is_ours = !spares_.count(fragment);
  }
  if (is_ours &&
      file->Reuse(fs_, absl::StrCat(file->path(), ".spare.tmp"), nullptr)) {
    MutexLock lock(&mutex_);
    std::swap(spares_[fragment], file);
    if (file == nullptr) return;
  }
  fs_.Remove(file->path()).IgnoreError();
}

void DeltaRing::DropSpares() {
  std::map<int32_t, std::shared_ptr<DeltaFile>> spares;
  {
    MutexLock lock(&mutex_);
    spares.swap(spares_);
  }
  for (const auto& [fragment, file] : spares) {
    fs_.Remove(file->path()).IgnoreError();
  }
}

std::vector<std::shared_ptr<DeltaFile>> DeltaRing::Chain(int32_t fragment,
                                                         int64_t from,
                                                         int64_t to) const {
  std::vector<std::shared_ptr<DeltaFile>> chain;
  if (from < 0 || from >= to || to - from > kept_count(fragment)) return chain;
  MutexLock lock(&mutex_);
  for (int64_t version = from + 1; version <= to; ++version) {
    const auto it = deltas_.find({fragment, version});
    if (it == deltas_.end()) return {};
    chain.push_back(it->second);
  }
  return chain;
}

}  // namespace atl::server
