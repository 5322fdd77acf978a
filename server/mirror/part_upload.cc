#include "server/mirror/part_upload.h"

#include <algorithm>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/sha256.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr int64_t kPieceBlocks = 16;  // 256 KiB of elements.
constexpr size_t kPieceBytes = 256 << 10;
// Uploads of one part that another writer of its name disturbs.
constexpr int kConflictCountMax = 5;

// Passes the part's bytes to `sink`, in order.
absl::Status ForEachPiece(
    const PartSource& source, const std::string& header,
    absl::FunctionRef<absl::Status(absl::string_view)> sink) {
  for (size_t at = 0; at < header.size(); at += kPieceBytes) {
    RETURN_IF_ERROR(sink(absl::string_view(header).substr(at, kPieceBytes)));
  }
  const ShardRange& range = source.range;
  std::vector<float> elements;
  const auto array_count = static_cast<int>(source.identity.array_names.size());
  for (int array = 0; array < array_count; ++array) {
    for (int64_t block = range.blocks().begin; block < range.blocks().end;
         block += kPieceBlocks) {
      const IndexRange blocks = {
          block, std::min(block + kPieceBlocks, range.blocks().end)};
      elements.resize(range.ElementCount(blocks));
      RETURN_IF_ERROR(source.file->Read(array, blocks, elements.data()));
      RETURN_IF_ERROR(sink(codec::F32Bytes(elements)));
    }
  }
  return absl::OkStatus();
}

// True if the object exists, whole.
absl::StatusOr<bool> Exists(ObjectStore& store, const std::string& name,
                            const MirroredPart& part) {
  const absl::StatusOr<ObjectInfo> info = store.Stat(name);
  if (absl::IsNotFound(info.status())) return false;
  RETURN_IF_ERROR(info.status());
  if (info->size_bytes == part.size_bytes &&
      (info->sha256.empty() || info->sha256 == part.sha256)) {
    return true;
  }
  return absl::DataLossError(absl::StrCat(
      store.GetUrl(name), " has ", info->size_bytes, " bytes, not ",
      part.size_bytes, ", or another SHA-256: another program wrote it; remove "
      "it"));
}

absl::Status Upload(ObjectStore& store, const std::string& name,
                    const PartSource& source, const std::string& header,
                    const MirroredPart& part, Throttle& throttle) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                   store.Write(name, WriteMode::kCreate));
  writer->set_sha256(part.sha256);
  codec::Sha256 sha;
  RETURN_IF_ERROR(
      ForEachPiece(source, header, [&](absl::string_view bytes) {
        sha.Update(bytes);
        absl::Status status =
            throttle.Take(static_cast<int64_t>(bytes.size()));
        if (status.ok()) status = writer->Append(bytes);
        return status;
      }));
  if (codec::ToHex(sha.Finish()) != part.sha256) {
    return absl::DataLossError(
        absl::StrCat(source.file->path(), " changed while it was uploaded"));
  }
  failpoint::Hit("server.mirror_commit.before");
  return writer->Commit();
}

}  // namespace

absl::StatusOr<MirroredPart> UploadPart(ObjectStore& store,
                                        const PartSource& source,
                                        Throttle& throttle) {
  const mirror::PartIdentity& identity = source.identity;
  const std::string header =
      mirror::PartHeader(source.range.layout(), identity);
  MirroredPart part{.fragment = identity.fragment};
  codec::Sha256 sha;
  RETURN_IF_ERROR(ForEachPiece(source, header, [&](absl::string_view bytes) {
    sha.Update(bytes);
    part.size_bytes += static_cast<int64_t>(bytes.size());
    return throttle.Take(0);  // Only to be cancelled.
  }));
  part.sha256 = codec::ToHex(sha.Finish());
  const std::string name = mirror::PartName(identity.place, identity.shard,
                                            identity.fragment, part.sha256);
  absl::Status status;
  for (int attempt = 0; attempt < kConflictCountMax; ++attempt) {
    ASSIGN_OR_RETURN(const bool exists, Exists(store, name, part));
    if (exists) return part;
    status = Upload(store, name, source, header, part, throttle);
    part.is_new = status.ok();
    if (status.ok()) return part;
    // Another writer of the same bytes was faster, or comes in between.
    if (!absl::IsAlreadyExists(status) && !absl::IsAborted(status)) break;
  }
  return status;
}

}  // namespace atl::server
