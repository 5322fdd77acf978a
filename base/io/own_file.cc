#include "base/io/own_file.h"

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr int64_t kPortTextBytesMax = 300;
constexpr absl::string_view kTemporarySuffix = ".tmp";

// True for "PORT\n", "HOST:PORT\n" and an empty file.
bool IsPortText(absl::string_view text) {
  if (text.empty()) return true;
  if (!absl::ConsumeSuffix(&text, "\n")) return false;
  const size_t colon = text.rfind(':');
  const absl::string_view port =
      colon == absl::string_view::npos ? text : text.substr(colon + 1);
  for (const char c : port) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return !port.empty() && text.find('\n') == absl::string_view::npos;
}

absl::Status Replace(FileSystem &file_system, const std::string &to,
                     absl::Span<const absl::string_view> pieces,
                     bool is_private = false) {
  const std::string temporary =
      absl::StrCat(to, ".", RandomId(), kTemporarySuffix);
  absl::Status status;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                     is_private ? file_system.OpenPrivate(temporary)
                                : file_system.OpenForWrite(temporary));
    status = file->WriteAt(0, pieces);
    if (status.ok()) status = file->Sync();
  }
  if (status.ok()) status = file_system.Rename(temporary, to);
  if (!status.ok()) {
    file_system.Remove(temporary).IgnoreError();
    return status;
  }
  return file_system.SyncDirectory(ParentDirectory(to));
}

// Removes the temporary files for `path`, as far as possible.
void RemoveTemporaries(FileSystem &file_system, const std::string &path) {
  const std::string directory = ParentDirectory(path);
  const std::string own = path.substr(path.rfind('/') + 1);
  const auto names = file_system.List(directory);
  if (!names.ok()) return;
  for (const std::string &name : *names) {
    if (name != own && OwnFileName(name) == own) {
      file_system.Remove(absl::StrCat(directory, "/", name)).IgnoreError();
    }
  }
}

}  // namespace

absl::Status ReplaceFile(FileSystem &file_system, const std::string &path,
                         absl::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string to, FollowTrustedLinks(path));
  return Replace(file_system, to, absl::MakeConstSpan(&bytes, 1));
}

absl::string_view OwnFileName(absl::string_view name) {
  absl::string_view stem = name;
  if (!absl::ConsumeSuffix(&stem, kTemporarySuffix)) return name;
  const size_t dot = stem.rfind('.');
  return dot != stem.npos && IsRandomId(stem.substr(dot + 1))
             ? stem.substr(0, dot)
             : name;
}

absl::Status ReplaceOwnFile(FileSystem &file_system, const std::string &path,
                            absl::Span<const absl::string_view> pieces) {
  RemoveTemporaries(file_system, path);
  return Replace(file_system, path, pieces, /*is_private=*/true);
}

absl::Status WritePortFile(const std::string &path, absl::string_view text) {
  if (path.empty()) return absl::OkStatus();
  FileSystem &files = PosixFileSystem();
  ASSIGN_OR_RETURN(const std::string to, FollowTrustedLinks(path));
  const absl::StatusOr<std::string> before =
      ReadFile(files, to, kPortTextBytesMax);
  if (!absl::IsNotFound(before.status()) &&
      !(before.ok() && IsPortText(*before))) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, " exists and is no port file: give another path, or remove it"));
  }
  const std::string line = absl::StrCat(text, "\n");
  const absl::string_view piece = line;
  return Replace(files, to, absl::MakeConstSpan(&piece, 1));
}

}  // namespace atl
