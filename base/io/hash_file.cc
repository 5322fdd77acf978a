#include "base/io/hash_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

}  // namespace

absl::StatusOr<codec::Sha256Digest> HashFile(const RandomAccessFile& file,
                                             int64_t size_bytes,
                                             const std::string& path) {
  codec::Sha256 sha;
  std::string buffer(kReadBytes, '\0');
  for (int64_t offset = 0; offset < size_bytes;) {
    const int64_t wanted = std::min(kReadBytes, size_bytes - offset);
    ASSIGN_OR_RETURN(
        const int64_t count,
        file.ReadAt(offset, absl::MakeSpan(buffer.data(), wanted)));
    if (count <= 0) {
      return absl::DataLossError(absl::StrCat(path, " ends early"));
    }
    sha.Update(absl::string_view(buffer).substr(0, count));
    offset += count;
  }
  return sha.Finish();
}

}  // namespace atl
