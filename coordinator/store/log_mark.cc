#include "coordinator/store/log_mark.h"

#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/crc32c.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

constexpr char kMagic[] = "atollmrk";
constexpr size_t kSlotBytes = 512;
constexpr size_t kCheckedBytes = kSlotBytes - 4;
// A disk may tear one page, so each slot has its own.
constexpr int64_t kPageBytes = 4096;
constexpr int kSlotCount = 2;

std::string EncodeSlot(int64_t index) {
  std::string slot(kSlotBytes, '\0');
  std::memcpy(slot.data(), kMagic, 8);
  std::memcpy(slot.data() + 8, &index, 8);
  const uint32_t crc =
      codec::Crc32c(absl::string_view(slot).substr(0, kCheckedBytes));
  std::memcpy(slot.data() + kCheckedBytes, &crc, 4);
  return slot;
}

std::optional<int64_t> DecodeSlot(absl::string_view slot) {
  int64_t index;
  std::memcpy(&index, slot.data() + 8, 8);
  if (index < 0 || slot != EncodeSlot(index)) return std::nullopt;
  return index;
}

}  // namespace

LogMark::LogMark(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)) {}

absl::StatusOr<std::unique_ptr<LogMark>> LogMark::Read(FileSystem& files,
                                                       std::string path) {
  std::unique_ptr<LogMark> mark(new LogMark(files, std::move(path)));
  if (!files.Exists(mark->path_)) return mark;
  ASSIGN_OR_RETURN(mark->file_, files.OpenForWrite(mark->path_));
  for (int slot = 0; slot < kSlotCount; ++slot) {
    char bytes[kSlotBytes];
    const auto read =
        mark->file_->ReadAt(slot * kPageBytes, absl::MakeSpan(bytes));
    if (!read.ok() || *read != static_cast<int64_t>(kSlotBytes)) continue;
    const auto index = DecodeSlot(absl::string_view(bytes, kSlotBytes));
    if (!index.has_value() || (mark->index_ && *index <= *mark->index_)) {
      continue;
    }
    mark->index_ = index;
    mark->next_slot_ = 1 - slot;
  }
  return mark;
}

absl::Status LogMark::Create() {
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   files_.OpenForWrite(path_));
  RETURN_IF_ERROR(file->Preallocate(kSlotCount * kPageBytes));
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(files_.SyncDirectory(ParentDirectory(path_)));
  file_ = std::move(file);
  return absl::OkStatus();
}

absl::Status LogMark::Write(int64_t index) {
  // A file without a mark may be the rest of a Create that was cut off.
  if (!index_.has_value()) RETURN_IF_ERROR(Create());
  RETURN_IF_ERROR(file_->WriteAt(next_slot_ * kPageBytes, EncodeSlot(index)));
  RETURN_IF_ERROR(file_->Sync());
  index_ = index;
  next_slot_ = 1 - next_slot_;
  return absl::OkStatus();
}

}  // namespace atl::coordinator
