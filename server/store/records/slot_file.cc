#include "server/store/records/slot_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr uint32_t kMagic = 0x544c5341;  // "ASLT".
constexpr size_t kLengthAt = 4;
constexpr size_t kCrcAt = 8;
constexpr size_t kCounterAt = 16;
constexpr size_t kValueAt = 24;

template <typename T>
T GetNumber(absl::string_view slot, size_t at) {
  T value;
  std::memcpy(&value, slot.data() + at, sizeof(value));
  return value;
}

uint32_t SlotCrc(absl::string_view slot, uint32_t length) {
  return codec::ExtendCrc32c(
      codec::Crc32c(slot.substr(kLengthAt, kCrcAt - kLengthAt)),
      slot.substr(kCounterAt, kValueAt - kCounterAt + length));
}

std::string EncodeSlot(uint64_t counter, absl::string_view value) {
  std::string slot(SlotFile::kSlotBytes, '\0');
  const uint32_t length = static_cast<uint32_t>(value.size());
  std::memcpy(slot.data(), &kMagic, sizeof(kMagic));
  std::memcpy(slot.data() + kLengthAt, &length, sizeof(length));
  std::memcpy(slot.data() + kCounterAt, &counter, sizeof(counter));
  if (length > 0) {
    std::memcpy(slot.data() + kValueAt, value.data(), length);
  }
  const uint32_t crc = SlotCrc(slot, length);
  std::memcpy(slot.data() + kCrcAt, &crc, sizeof(crc));
  return slot;
}

bool IsWhole(absl::string_view slot) {
  if (slot.size() != SlotFile::kSlotBytes ||
      GetNumber<uint32_t>(slot, 0) != kMagic) {
    return false;
  }
  const uint32_t length = GetNumber<uint32_t>(slot, kLengthAt);
  return length <= SlotFile::kValueBytesMax &&
         GetNumber<uint32_t>(slot, kCrcAt) == SlotCrc(slot, length);
}

bool IsZero(absl::string_view slot) {
  return slot.find_first_not_of('\0') == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlotFile>> SlotFile::Create(
    FileSystem& fs, const std::string& path, absl::string_view value) {
  if (value.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": value too long"));
  }
  RETURN_IF_ERROR(WriteFileAtomically(
      fs, path, EncodeSlot(1, value) + std::string(kSlotBytes, '\0')));
  return Open(fs, path);
}

absl::StatusOr<SlotFile> SlotFile::Load(FileSystem& fs,
                                        const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(fs, path, 16 * kSlotBytes));
  SlotFile found;
  for (int i = 0; i < 2; ++i) {
    const absl::string_view slot =
        absl::ClippedSubstr(bytes, i * kSlotBytes, kSlotBytes);
    if (!IsWhole(slot)) {
      // The second slot of a new file is zero.
      found.had_damaged_slot_ |= i == 0 || !IsZero(slot);
      continue;
    }
    const uint64_t counter = GetNumber<uint64_t>(slot, kCounterAt);
    if (counter <= found.counter_) continue;
    found.counter_ = counter;
    found.newest_ = i;
    found.value_ = std::string(
        slot.substr(kValueAt, GetNumber<uint32_t>(slot, kLengthAt)));
  }
  if (found.counter_ == 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": neither of its two copies is whole"));
  }
  return found;
}

absl::StatusOr<std::unique_ptr<SlotFile>> SlotFile::Open(
    FileSystem& fs, const std::string& path) {
  ASSIGN_OR_RETURN(SlotFile found, Load(fs, path));
  ASSIGN_OR_RETURN(found.file_, fs.OpenForWrite(path));
  return std::unique_ptr<SlotFile>(new SlotFile(std::move(found)));
}

absl::StatusOr<std::string> SlotFile::Read(FileSystem& fs,
                                           const std::string& path) {
  ASSIGN_OR_RETURN(SlotFile found, Load(fs, path));
  return std::move(found.value_);
}

absl::Status SlotFile::Write(absl::string_view value) {
  if (value.size() > kValueBytesMax) {
    return absl::InvalidArgumentError("value too long for its slot");
  }
  const int older = 1 - newest_;
  RETURN_IF_ERROR(
      file_->WriteAt(older * kSlotBytes, EncodeSlot(counter_ + 1, value)));
  ++counter_;
  newest_ = older;
  return absl::OkStatus();
}

absl::Status SlotFile::Sync() {
  const absl::Status synced = file_->Sync();
  if (!synced.ok()) newest_ = 1 - newest_;
  return synced;
}

}  // namespace atl::server
