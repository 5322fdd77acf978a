#include "server/store/header_page.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

// magic[8], format u32, length u32, crc u32 (of format, length and message).
constexpr size_t kPrefixBytes = 20;

constexpr int64_t kStraightPieceBytes = 8 << 20;
static_assert(kHeaderPageBytes % RandomAccessFile::kStraightBytes == 0,
              "bytes after the page are written with WriteStraightAt");

void PutU32(uint32_t value, char* out) {
  std::memcpy(out, &value, sizeof(value));  // Little-endian machines only.
}

uint32_t GetU32(const char* in) {
  uint32_t value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

uint32_t PageCrc(absl::string_view page, uint32_t length) {
  return codec::ExtendCrc32c(codec::Crc32c(page.substr(8, 8)),
                             page.substr(kPrefixBytes, length));
}

}  // namespace

absl::StatusOr<std::string> EncodeHeaderPage(
    absl::string_view magic, const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  if (body.size() + kPrefixBytes > kHeaderPageBytes || magic.size() != 8) {
    return absl::InvalidArgumentError("header does not fit its page");
  }
  std::string page(kHeaderPageBytes, '\0');
  const uint32_t length = static_cast<uint32_t>(body.size());
  std::memcpy(page.data(), magic.data(), 8);
  PutU32(kFormatNumber, page.data() + 8);
  PutU32(length, page.data() + 12);
  std::memcpy(page.data() + kPrefixBytes, body.data(), body.size());
  PutU32(PageCrc(page, length), page.data() + 16);
  return page;
}

absl::Status DecodeHeaderPage(absl::string_view page, absl::string_view magic,
                              const std::string& path,
                              google::protobuf::MessageLite* message) {
  if (page.size() != kHeaderPageBytes || page.substr(0, 8) != magic) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a file of kind ", magic));
  }
  const uint32_t format = GetU32(page.data() + 8);
  const uint32_t length = GetU32(page.data() + 12);
  if (length > kHeaderPageBytes - kPrefixBytes ||
      GetU32(page.data() + 16) != PageCrc(page, length)) {
    return absl::DataLossError(
        absl::StrCat(path, ": the header's checksum does not match"));
  }
  if (format != kFormatNumber) {
    return absl::DataLossError(absl::StrCat(path, " has format ", format,
                                            "; this program reads format ",
                                            kFormatNumber));
  }
  if (!message->ParseFromArray(page.data() + kPrefixBytes,
                               static_cast<int>(length))) {
    return absl::DataLossError(absl::StrCat(path, ": the header is damaged"));
  }
  return absl::OkStatus();
}

absl::Status ReadFully(const RandomAccessFile& file, const std::string& path,
                       int64_t offset, absl::Span<char> out) {
  ASSIGN_OR_RETURN(const int64_t count, file.ReadAt(offset, out));
  if (count != static_cast<int64_t>(out.size())) {
    return EndsEarly(path, offset, count, out.size());
  }
  return absl::OkStatus();
}

absl::Status WriteStraight(RandomAccessFile& file, int64_t offset,
                           absl::string_view bytes) {
  for (; !bytes.empty(); offset += kStraightPieceBytes) {
    const absl::string_view piece = bytes.substr(0, kStraightPieceBytes);
    RETURN_IF_ERROR(file.WriteStraightAt(offset, piece));
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::Status EndsEarly(const std::string& path, int64_t offset, int64_t count,
                       size_t wanted) {
  return absl::DataLossError(absl::StrCat(path, " ends at byte ",
                                          offset + count, ", before byte ",
                                          offset + wanted));
}

}  // namespace atl::server
