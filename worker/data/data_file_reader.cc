#include "worker/data/data_file_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/status/status_macros.h"
#include "worker/data/token_file.h"

namespace atl::worker {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

}  // namespace

absl::StatusOr<DataFileReader> DataFileReader::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("data file ", path, " cannot be opened"));
  }
  return DataFileReader(std::move(fd), path);
}

absl::Status DataFileReader::ReadAt(int64_t offset,
                                    absl::Span<char> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(absl::StrCat(
          "data file ", path_, " cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(
          "data file ", path_,
          " is shorter than when it was opened: the data of a run must not "
          "change while it trains"));
    }
    offset += got;
    out.remove_prefix(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DataFileReader::ComputeSha256(
    int64_t size_bytes) const {
  codec::Sha256 sha;
  std::string buffer(std::min(kReadBytes, size_bytes), '\0');
  for (int64_t at = 0; at < size_bytes; at += kReadBytes) {
    const int64_t count = std::min(kReadBytes, size_bytes - at);
    RETURN_IF_ERROR(ReadAt(at, absl::MakeSpan(buffer.data(), count)));
    sha.Update(absl::string_view(buffer.data(), count));
  }
  return codec::ToHex(sha.Finish());
}

absl::StatusOr<TokenLayout> DataFileReader::ReadLayout(
    int64_t size_bytes, v1::DataFormat format) const {
  switch (format) {
    case v1::DATA_FORMAT_BYTES:
      return TokenLayout{.token_count = size_bytes};
    case v1::DATA_FORMAT_UINT16:
      if (size_bytes % 2 != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("data file ", path_, " has an odd length (",
                         size_bytes, " bytes): it cannot hold uint16 tokens"));
      }
      return TokenLayout{.token_bytes = 2, .token_count = size_bytes / 2};
    case v1::DATA_FORMAT_LLMC:
      return ReadLlmcLayout(size_bytes);
    default:
      return absl::InvalidArgumentError(
          "the data's format is not set: bytes, llmc or uint16");
  }
}

absl::StatusOr<TokenLayout> DataFileReader::ReadLlmcLayout(
    int64_t size_bytes) const {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path_, " is not an llm.c token file: ", what,
                     "; check the format of the run's data"));
  };
  if (size_bytes < kTokenFileHeaderBytes) return wrong("it has no header");
  int32_t header[3];
  RETURN_IF_ERROR(ReadAt(
      0, absl::MakeSpan(reinterpret_cast<char*>(header), sizeof(header))));
  const TokenFileKind* const kind = std::find_if(
      std::begin(kTokenFileKinds), std::end(kTokenFileKinds),
      [&](const TokenFileKind& k) { return k.magic == header[0]; });
  if (kind == std::end(kTokenFileKinds)) {
    return wrong("its magic number is neither 20240520 nor 20240801");
  }
  if (header[1] != kind->version) {
    return wrong(absl::StrCat("its version is not ", kind->version));
  }
  if (header[2] < 0 ||
      size_bytes - kTokenFileHeaderBytes != kind->token_bytes * header[2]) {
    return wrong(absl::StrCat("its header says ", header[2],
                              " tokens, but its length does not match"));
  }
  return TokenLayout{.header_bytes = kTokenFileHeaderBytes,
                     .token_bytes = kind->token_bytes,
                     .token_count = header[2]};
}

void WidenTokens(const char* bytes, int64_t token_bytes,
                 absl::Span<int32_t> tokens) {
  if (token_bytes == 1) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint8_t>(bytes[i]);
    }
    return;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint32_t token = 0;
    for (int64_t k = token_bytes; k-- > 0;) {
      token = token << 8 | static_cast<uint8_t>(bytes[token_bytes * i + k]);
    }
    tokens[i] = static_cast<int32_t>(std::min<uint32_t>(token, INT32_MAX));
  }
}

}  // namespace atl::worker
