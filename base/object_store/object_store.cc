#include "base/object_store/object_store.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl {

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
