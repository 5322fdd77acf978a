#include "server/store/manifest_store.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/codec/sha256.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/io/hash_file.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/manifest.h"
#include "server/store/shard_files.h"
#include "server/store/shard_range.h"

namespace atl::server {
namespace {

constexpr absl::string_view kSuffix = ".json";
// A manifest has one entry a fragment, of a few hundred bytes each.
constexpr int64_t kManifestBytesMax = 16 << 20;

// Fills in the size and the SHA-256 of the file at `path`.
absl::Status Measure(FileSystem& fs, const std::string& path,
                     ManifestFile* entry) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   fs.OpenForRead(path));
  ASSIGN_OR_RETURN(entry->size_bytes, file->Size());
  ASSIGN_OR_RETURN(const codec::Sha256Digest sum,
                   HashFile(*file, entry->size_bytes, path));
  entry->sha256 = codec::ToHex(sum);
  return absl::OkStatus();
}

std::string Sha256Hex(absl::string_view bytes) {
  return codec::ToHex(codec::ComputeSha256(bytes));
}

}  // namespace

absl::Status ManifestStore::Write(int64_t run_epoch, const v1::Pin& pin) {
  RETURN_IF_ERROR(ValidateId("pin_id", pin.pin_id()));
  Manifest manifest;
  manifest.run_id = context_.run.run_id();
  manifest.run_epoch = run_epoch;
  manifest.pin_id = pin.pin_id();
  manifest.commit_seq = pin.commit_seq();
  manifest.layout_fingerprint = context_.layout.fingerprint();
  manifest.shard = context_.shard;
  manifest.shard_count = context_.shard_count;
  for (const v1::FragmentVersion& version : pin.cut()) {
    const int32_t f = version.fragment();
    if (f < 0 || f >= context_.layout.fragment_count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pin ", pin.pin_id(), " names fragment ", f));
    }
    if (ShardRange(context_.layout, f, context_.shard, context_.shard_count)
            .empty())
      continue;
    const std::optional<HeldVersion> held = find_version_(f, version.version());
    const std::string path = context_.names.VersionPath(f, version.version());
    if (!held || held->file->path() != path) {
      return absl::DataLossError(absl::StrCat(path, " is missing or damaged"));
    }
    ManifestFile& file = manifest.files.emplace_back();
    file.fragment = f;
    file.version = version.version();
    file.commit_seq = version.commit_seq();
    file.shard_digest = held->digest.ToHex();
    file.digest = Digest128::FromProto(version.digest()).ToHex();
    file.file = path.substr(context_.names.directory().size() + 1);
    RETURN_IF_ERROR(Measure(context_.fs, path, &file));
  }
  {
    MutexLock lock(&mutex_);
    const Known* parent = nullptr;
    for (const auto& [pin_id, known] : manifests_) {
      if (known.commit_seq < pin.commit_seq() &&
          (parent == nullptr || known.commit_seq > parent->commit_seq)) {
        parent = &known;
        manifest.parent_pin_id = pin_id;
        manifest.parent_sha256 = known.sha256;
      }
    }
  }
  const std::string text = ToJson(manifest);
  failpoint::Hit("server.manifest.before");
  RETURN_IF_ERROR(WriteFileAtomically(
      context_.fs, context_.names.ManifestPath(pin.pin_id()), text));
  failpoint::Hit("server.manifest.after");
  MutexLock lock(&mutex_);
  manifests_[pin.pin_id()] = {pin.commit_seq(), Sha256Hex(text)};
  return absl::OkStatus();
}

absl::Status ManifestStore::Drop(const std::string& pin_id) {
  RETURN_IF_ERROR(ValidateId("pin_id", pin_id));
  {
    MutexLock lock(&mutex_);
    manifests_.erase(pin_id);
  }
  const absl::Status removed =
      context_.fs.Remove(context_.names.ManifestPath(pin_id));
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  return context_.fs.SyncDirectory(context_.names.checkpoints());
}

absl::Status ManifestStore::DropAfter(
    const google::protobuf::RepeatedPtrField<v1::FragmentVersion>& cut) {
  std::map<int32_t, int64_t> newest;
  for (const v1::FragmentVersion& version : cut) {
    newest[version.fragment()] = version.version();
  }
  const std::string directory = context_.names.checkpoints();
  if (!context_.fs.Exists(directory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(context_.fs, directory, "checkpoints"));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kSuffix)) continue;
    const absl::StatusOr<std::string> text = ReadFile(
        context_.fs, absl::StrCat(directory, "/", name), kManifestBytesMax);
    const absl::StatusOr<Manifest> manifest =
        text.ok() ? ParseManifest(*text) : text.status();
    if (!manifest.ok()) continue;  // Recover deletes it.
    for (const ManifestFile& file : manifest->files) {
      if (file.version <= newest[file.fragment]) continue;
      RETURN_IF_ERROR(Drop(name.substr(0, name.size() - kSuffix.size())));
      break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ManifestFact> ManifestStore::Check(
    const std::string& pin_id, absl::string_view text) const {
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text));
  if (manifest.run_id != context_.run.run_id() || manifest.pin_id != pin_id ||
      manifest.layout_fingerprint != context_.layout.fingerprint() ||
      manifest.shard != context_.shard ||
      manifest.shard_count != context_.shard_count) {
    return absl::DataLossError(
        "it belongs to another run, pin, layout or shard");
  }
  ManifestFact fact;
  fact.pin_id = pin_id;
  fact.commit_seq = manifest.commit_seq;
  for (const ManifestFile& file : manifest.files) {
    if (file.fragment < 0 ||
        file.fragment >= context_.layout.fragment_count()) {
      return absl::DataLossError(
          "it names a fragment that the run does not have");
    }
    fact.versions[file.fragment] = file.version;
    const std::string path =
        context_.names.VersionPath(file.fragment, file.version);
    // VersionFile::Open has checked header and table. Reads check the bytes.
    const std::optional<HeldVersion> held =
        find_version_(file.fragment, file.version);
    if (!held) {
      fact.fault = absl::StrCat(path, " is missing or damaged");
      continue;
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> opened,
                     context_.fs.OpenForRead(path));
    ASSIGN_OR_RETURN(const int64_t size_bytes, opened->Size());
    if (size_bytes != file.size_bytes) {
      fact.fault = absl::StrCat(path, " has ", size_bytes,
                                " bytes; the manifest says ", file.size_bytes);
    } else if (held->digest.ToHex() != file.shard_digest) {
      fact.fault =
          absl::StrCat(path, " has another digest than the manifest says");
    }
  }
  return fact;
}

absl::Status ManifestStore::Recover(bool may_change) {
  const std::string directory = context_.names.checkpoints();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(context_.fs, directory, "checkpoints"));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    absl::string_view pin_id = name;
    if (!absl::ConsumeSuffix(&pin_id, kSuffix) ||
        !ValidateId("pin_id", std::string(pin_id)).ok()) {
      // A crash left it incomplete.
      if (may_change) RETURN_IF_ERROR(context_.fs.Remove(path));
      continue;
    }
    const absl::StatusOr<std::string> text =
        ReadFile(context_.fs, path, kManifestBytesMax);
    absl::StatusOr<ManifestFact> fact =
        text.ok() ? Check(std::string(pin_id), *text) : text.status();
    if (!fact.ok()) {
      // If its pin still exists, it is written again from the versions.
      LOG(ERROR) << "run " << context_.run.run_id() << ": " << path
                 << " is damaged; it is written again if its pin exists: "
                 << fact.status().ToString();
      if (may_change) RETURN_IF_ERROR(context_.fs.Remove(path));
      continue;
    }
    if (!fact->fault.empty()) {
      LOG(ERROR) << "run " << context_.run.run_id() << ": checkpoint " << pin_id
                 << " is damaged here: " << fact->fault;
    }
    MutexLock lock(&mutex_);
    manifests_[std::string(pin_id)] = {fact->commit_seq, Sha256Hex(*text)};
    found_.push_back(*std::move(fact));
  }
  return absl::OkStatus();
}

}  // namespace atl::server
