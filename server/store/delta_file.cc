#include "server/store/delta_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/crc32c.h"
#include "base/status/status_macros.h"
#include "server/store/header_page.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {
namespace {

constexpr absl::string_view kDeltaMagic = "ATOLLDLT";

absl::string_view TableBytes(const std::vector<uint32_t>& table) {
  return absl::string_view(reinterpret_cast<const char*>(table.data()),
                           table.size() * sizeof(uint32_t));
}

}  // namespace

DeltaFile::DeltaFile(std::unique_ptr<RandomAccessFile> file, std::string path,
                     const EncodedLayout& layout, IndexRange blocks,
                     bool writable)
    : file_(std::move(file)),
      layout_(layout),
      blocks_(blocks),
      writable_(writable),
      table_(blocks.size()),
      path_(std::move(path)) {}

int64_t DeltaFile::TableOffset() const {
  return kHeaderPageBytes + PaddedBytes(payload_bytes());
}

int64_t DeltaFile::ImageElementCount(const EncodedLayout& layout,
                                     IndexRange blocks) {
  return PaddedBytes(layout.ByteCount(blocks)) /
         static_cast<int64_t>(sizeof(float));
}

void DeltaFile::SetImage(VersionImage image) {
  if (image != nullptr) {
    std::memset(reinterpret_cast<char*>(image.get()) + payload_bytes(), 0,
                static_cast<size_t>(PaddedBytes(payload_bytes()) -
                                    payload_bytes()));
  }
  MutexLock lock(&mutex_);
  image_ = std::move(image);
}

absl::StatusOr<std::unique_ptr<DeltaFile>> DeltaFile::Create(
    FileSystem& fs, const std::string& path, const EncodedLayout& layout,
    IndexRange blocks, VersionImage image) {
  // An earlier attempt left it; open readers are not affected.
  if (fs.Exists(path)) RETURN_IF_ERROR(fs.Remove(path));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   fs.OpenForWrite(path));
  std::unique_ptr<DeltaFile> delta(
      new DeltaFile(std::move(file), path, layout, blocks, true));
  const absl::Status reserved = delta->file_->Preallocate(
      delta->TableOffset() +
      static_cast<int64_t>(TableBytes(delta->table_).size()));
  if (!reserved.ok()) {
    delta.reset();
    fs.Remove(path).IgnoreError();
    return reserved;
  }
  delta->SetImage(std::move(image));
  return delta;
}

bool DeltaFile::Reuse(FileSystem& fs, const std::string& new_path,
                      VersionImage image) {
  if (!writable_ || !fs.Rename(path(), new_path).ok()) return false;
  identity_ = DeltaIdentity();
  SetImage(std::move(image));
  MutexLock lock(&mutex_);
  path_ = new_path;
  sealed_ = false;
  return true;
}

absl::StatusOr<std::unique_ptr<DeltaFile>> DeltaFile::Open(
    FileSystem& fs, const std::string& path, const EncodedLayout& layout,
    IndexRange blocks) {
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   fs.OpenForRead(path));
  std::unique_ptr<DeltaFile> delta(
      new DeltaFile(std::move(file), path, layout, blocks, false));
  std::string page(kHeaderPageBytes, '\0');
  RETURN_IF_ERROR(ReadFully(*delta->file_, path, 0, absl::MakeSpan(page)));
  records::DeltaHeader header;
  RETURN_IF_ERROR(DecodeHeaderPage(page, kDeltaMagic, path, &header));
  if (header.fragment() != layout.fragment() ||
      header.block_begin() != blocks.begin ||
      header.block_end() != blocks.end ||
      header.codec() != static_cast<int32_t>(layout.codec().id()) ||
      header.payload_bytes() != delta->payload_bytes()) {
    return absl::DataLossError(
        absl::StrCat(path, " does not fit the run's layout or codec"));
  }
  RETURN_IF_ERROR(ReadFully(
      *delta->file_, path, delta->TableOffset(),
      absl::MakeSpan(reinterpret_cast<char*>(delta->table_.data()),
                     delta->table_.size() * sizeof(uint32_t))));
  if (codec::Crc32c(TableBytes(delta->table_)) != header.table_crc32c()) {
    return absl::DataLossError(
        absl::StrCat(path, ": the table's checksum does not match"));
  }
  delta->identity_ = {header.run_id(), header.shard(), header.version()};
  MutexLock lock(&delta->mutex_);
  delta->sealed_ = true;
  return delta;
}

char* DeltaFile::Map(IndexRange blocks, VersionImage* keep) const {
  {
    MutexLock lock(&mutex_);
    *keep = image_;
  }
  if (*keep == nullptr) return nullptr;
  return reinterpret_cast<char*>(keep->get()) + Offset(blocks.begin);
}

absl::Status DeltaFile::Write(IndexRange blocks, const char* bytes) {
  const int64_t first = Offset(blocks.begin);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    table_[b - blocks_.begin] = codec::Crc32c(
        {bytes + (Offset(b) - first),
         static_cast<size_t>(Offset(b + 1) - Offset(b))});
  }
  const absl::string_view all(
      bytes, static_cast<size_t>(Offset(blocks.end) - first));
  VersionImage keep;
  if (char* const mapped = Map(blocks, &keep)) {
    if (mapped != bytes) std::memcpy(mapped, bytes, all.size());
    return absl::OkStatus();
  }
  return file_->WriteAt(kHeaderPageBytes + first, all);
}

absl::Status DeltaFile::Read(IndexRange blocks, char* bytes) const {
  const int64_t first = Offset(blocks.begin);
  const size_t size = static_cast<size_t>(Offset(blocks.end) - first);
  VersionImage keep;
  if (const char* const mapped = Map(blocks, &keep)) {
    std::memcpy(bytes, mapped, size);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ReadFully(*file_, path(), kHeaderPageBytes + first,
                            absl::MakeSpan(bytes, size)));
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const absl::string_view block(
        bytes + (Offset(b) - first),
        static_cast<size_t>(Offset(b + 1) - Offset(b)));
    if (codec::Crc32c(block) != table_[b - blocks_.begin]) {
      return absl::DataLossError(absl::StrCat(
          path(), ": the checksum of block ", b, " does not match"));
    }
  }
  return absl::OkStatus();
}

absl::Status DeltaFile::Seal(const DeltaIdentity& identity) {
  VersionImage keep;
  if (const char* const mapped = Map(blocks_, &keep)) {
    RETURN_IF_ERROR(WriteStraight(
        *file_, kHeaderPageBytes,
        {mapped, static_cast<size_t>(PaddedBytes(payload_bytes()))}));
  }
  records::DeltaHeader header;
  header.set_run_id(identity.run_id);
  header.set_shard(identity.shard);
  header.set_fragment(layout_.fragment());
  header.set_version(identity.version);
  header.set_block_begin(blocks_.begin);
  header.set_block_end(blocks_.end);
  header.set_codec(static_cast<int32_t>(layout_.codec().id()));
  header.set_payload_bytes(payload_bytes());
  header.set_table_crc32c(codec::Crc32c(TableBytes(table_)));
  ASSIGN_OR_RETURN(const std::string page,
                   EncodeHeaderPage(kDeltaMagic, header));
  RETURN_IF_ERROR(file_->WriteAt(TableOffset(), TableBytes(table_)));
  RETURN_IF_ERROR(file_->WriteAt(0, page));
  identity_ = identity;
  MutexLock lock(&mutex_);
  sealed_ = true;
  return absl::OkStatus();
}

void DeltaFile::DropImage() {
  VersionImage dropped;
  MutexLock lock(&mutex_);
  if (sealed_) dropped.swap(image_);
}

}  // namespace atl::server
