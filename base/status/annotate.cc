#include "base/status/annotate.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace atl {
namespace {

absl::StatusCode ToCode(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EIO:
    case EUCLEAN:
      return absl::StatusCode::kDataLoss;
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case ENOTEMPTY:
    case EBUSY:
      return absl::StatusCode::kFailedPrecondition;
    case EAGAIN:
    case EINTR:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
    case ECONNREFUSED:
    case ECONNRESET:
    case EADDRINUSE:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&annotated](absl::string_view type, const absl::Cord& payload) {
        annotated.SetPayload(type, payload);
      });
  return annotated;
}

absl::Status ErrnoToStatus(int error_number, absl::string_view context) {
  return absl::Status(
      ToCode(error_number),
      absl::StrCat(context, ": ",
                   std::generic_category().message(error_number)));
}

}  // namespace atl
