#include "worker/data/token_file.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/io/own_file.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

void PutInt32(int32_t value, char* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<char>(static_cast<uint32_t>(value) >> (8 * i));
  }
}

}  // namespace

std::string MakeTokenFileHeader(int64_t token_bytes, int64_t token_count) {
  const TokenFileKind& kind =
      kTokenFileKinds[token_bytes == kTokenFileKinds[0].token_bytes ? 0 : 1];
  std::string header(kTokenFileHeaderBytes, '\0');
  PutInt32(kind.magic, header.data());
  PutInt32(kind.version, header.data() + 4);
  PutInt32(static_cast<int32_t>(token_count), header.data() + 8);
  return header;
}

TokenFileWriter::TokenFileWriter(FileSystem& file_system, std::string directory,
                                 TokenFileKind kind, int64_t file_tokens_max)
    : file_system_(file_system),
      directory_(std::move(directory)),
      kind_(kind),
      file_tokens_max_(file_tokens_max),
      file_(kTokenFileHeaderBytes, '\0') {}

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(
    FileSystem& file_system, const std::string& directory, int32_t vocab_size,
    int64_t file_tokens_max) {
  RETURN_IF_ERROR(file_system.CreateDirectories(directory));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   file_system.List(directory));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".bin")) continue;
    return absl::AlreadyExistsError(
        absl::StrCat("\"", directory, "\" has ", name,
                     " already: give a directory without *.bin"));
  }
  return std::unique_ptr<TokenFileWriter>(new TokenFileWriter(
      file_system, directory, kTokenFileKinds[vocab_size > (1 << 16) ? 1 : 0],
      file_tokens_max));
}

absl::Status TokenFileWriter::Append(absl::Span<const int32_t> tokens) {
  const size_t full_bytes =
      kTokenFileHeaderBytes + file_tokens_max_ * kind_.token_bytes;
  for (const int32_t token : tokens) {
    char bytes[4];
    PutInt32(token, bytes);
    file_.append(bytes, kind_.token_bytes);
    ++token_count_;
    if (file_.size() >= full_bytes) RETURN_IF_ERROR(WriteFile());
  }
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  if (file_.size() == kTokenFileHeaderBytes) return absl::OkStatus();
  return WriteFile();
}

absl::Status TokenFileWriter::WriteFile() {
  const int64_t count =
      (static_cast<int64_t>(file_.size()) - kTokenFileHeaderBytes) /
      kind_.token_bytes;
  file_.replace(0, kTokenFileHeaderBytes,
                MakeTokenFileHeader(kind_.token_bytes, count));
  RETURN_IF_ERROR(ReplaceFile(
      file_system_,
      absl::StrFormat("%s/tokens_%06d.bin", directory_, file_count_), file_));
  ++file_count_;
  file_.resize(kTokenFileHeaderBytes);
  return absl::OkStatus();
}

}  // namespace atl::worker
