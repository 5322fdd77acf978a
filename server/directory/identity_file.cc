#include "server/directory/identity_file.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::server {

absl::StatusOr<std::unique_ptr<IdentityFile>> IdentityFile::Create(
    FileSystem& fs, const std::string& path, records::Identity identity) {
  identity.set_format_number(kFormatNumber);
  ASSIGN_OR_RETURN(std::unique_ptr<SlotFile> file,
                   SlotFile::Create(fs, path, identity.SerializeAsString()));
  return std::unique_ptr<IdentityFile>(
      new IdentityFile(std::move(file), std::move(identity)));
}

absl::StatusOr<std::unique_ptr<IdentityFile>> IdentityFile::Open(
    FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::unique_ptr<SlotFile>> file = SlotFile::Open(fs, path);
  if (absl::IsDataLoss(file.status())) {
    return absl::DataLossError(absl::StrCat(
        file.status().message(),
        "; restore it from a backup, or give another --data-dir and "
        "--server-id"));
  }
  RETURN_IF_ERROR(file.status());
  records::Identity identity;
  if (!identity.ParseFromString((*file)->value())) {
    return absl::DataLossError(absl::StrCat(path, " does not parse"));
  }
  if (identity.format_number() != kFormatNumber) {
    return absl::DataLossError(absl::StrCat(
        path, " has format ", identity.format_number(),
        "; choose another --data-dir, because this program reads format ",
        kFormatNumber));
  }
  return std::unique_ptr<IdentityFile>(
      new IdentityFile(*std::move(file), std::move(identity)));
}

absl::Status IdentityFile::Write(records::Identity identity) {
  identity.set_format_number(kFormatNumber);
  RETURN_IF_ERROR(file_->Write(identity.SerializeAsString()));
  RETURN_IF_ERROR(file_->Sync());
  identity_ = std::move(identity);
  return absl::OkStatus();
}

}  // namespace atl::server
