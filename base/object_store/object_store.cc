#include "base/object_store/object_store.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// Tries of a small write that other writers of its name disturb.
constexpr int kConflictCountMax = 5;

absl::Status CannotRemove(absl::string_view url) {
  return absl::UnimplementedError(
      absl::StrCat(url, " cannot be removed; give a file:// or s3:// URL"));
}

}  // namespace

absl::StatusOr<int64_t> GetRangeEnd(const ReadRange& range, int64_t size_bytes,
                                    absl::string_view object) {
  if (range.offset < 0 || range.length.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(object, ": the range ", range.offset, " + ",
                     range.length.value_or(0), " has a negative number"));
  }
  const int64_t left = size_bytes - range.offset;
  if (left < 0 || range.length.value_or(0) > left) {
    return absl::OutOfRangeError(absl::StrCat(
        object, " has ", size_bytes, " bytes; the range begins at ",
        range.offset, " and has ", range.length.value_or(0)));
  }
  return range.offset + range.length.value_or(left);
}

absl::Status ObjectStore::Remove(absl::string_view name) {
  return CannotRemove(GetUrl(name));
}

absl::Status ObjectStore::RemoveUnfinished(absl::string_view prefix) {
  return CannotRemove(GetUrl(prefix));
}

absl::Status PutObject(ObjectStore& store, absl::string_view name,
                       absl::string_view bytes, WriteMode mode) {
  absl::Status status;
  for (int attempt = 0; attempt < kConflictCountMax; ++attempt) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                     store.Write(name, mode));
    writer->set_sha256(codec::ToHex(codec::ComputeSha256(bytes)));
    RETURN_IF_ERROR(writer->Append(bytes));
    status = writer->Commit();
    if (!absl::IsAborted(status)) break;
  }
  return status;
}

absl::StatusOr<std::string> GetObject(ObjectStore& store,
                                      absl::string_view name,
                                      int64_t bytes_max) {
  std::string out;
  RETURN_IF_ERROR(store.Read(name, {}, [&](absl::string_view bytes) {
    if (static_cast<int64_t>(out.size() + bytes.size()) > bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          store.GetUrl(name), " has more than ", bytes_max, " bytes"));
    }
    absl::StrAppend(&out, bytes);
    return absl::OkStatus();
  }));
  return out;
}

absl::Status CheckCreatesOnce(ObjectStore& store, absl::string_view probe) {
  // First, so that no probe stays where nothing may be removed.
  RETURN_IF_ERROR(store.Remove(probe));
  // Both begin before one ends: Write itself may look for an object.
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> first,
                   store.Write(probe, WriteMode::kCreate));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> second,
                   store.Write(probe, WriteMode::kCreate));
  RETURN_IF_ERROR(first->Append("first"));
  RETURN_IF_ERROR(second->Append("second"));
  RETURN_IF_ERROR(first->Commit());
  const absl::Status again = second->Commit();
  RETURN_IF_ERROR(store.Remove(probe));
  if (absl::IsAlreadyExists(again)) return absl::OkStatus();
  if (!again.ok()) return again;
  return absl::FailedPreconditionError(
      absl::StrCat(store.GetUrl(probe), ": the server ignores If-None-Match, "
                   "so one writer could replace another's object; upgrade it, "
                   "or give another URL"));
}

absl::StatusOr<codec::Sha256Digest> HashObject(ObjectStore& store,
                                               absl::string_view name,
                                               const ReadRange& range) {
  codec::Sha256 hash;
  RETURN_IF_ERROR(store.Read(name, range, [&hash](absl::string_view bytes) {
    hash.Update(bytes);
    return absl::OkStatus();
  }));
  return hash.Finish();
}

}  // namespace atl
