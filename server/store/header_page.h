// The first 4096 bytes of every file of a server: a magic number, a format
// number and a message, with a CRC (server/store/DESIGN.md, Header page).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"
#include "google/protobuf/message_lite.h"

namespace atl::server {

inline constexpr int64_t kHeaderPageBytes = 4096;
// `bytes` rounded up to whole pages: everything between header page and table
// is padded to pages.
inline constexpr int64_t PaddedBytes(int64_t bytes) {
  return (bytes + kHeaderPageBytes - 1) / kHeaderPageBytes * kHeaderPageBytes;
}
// Format of a shard's files and of RunRecord; the data directory has its own
// (server/directory/identity_file.h).
inline constexpr uint32_t kFormatNumber = 1;

// The page, kHeaderPageBytes long. `magic` has 8 characters.
//
// INVALID_ARGUMENT: the message is too long.
absl::StatusOr<std::string> EncodeHeaderPage(
    absl::string_view magic, const google::protobuf::MessageLite& message);

// Reads a page into `message`.
//
// DATA_LOSS: the page is damaged, or of another kind or format; the message
// names `path`.
absl::Status DecodeHeaderPage(absl::string_view page, absl::string_view magic,
                              const std::string& path,
                              google::protobuf::MessageLite* message);

// Reads exactly out.size() bytes of the file at `path`.
//
// DATA_LOSS: the file is shorter; the message names `path`. Else as ReadAt.
absl::Status ReadFully(const RandomAccessFile& file, const std::string& path,
                       int64_t offset, absl::Span<char> out);

// Writes `bytes` past the page cache (RandomAccessFile::WriteStraightAt), in
// pieces of 8 MiB. Larger pieces would delay the synced records of other
// threads; smaller ones would wake the caller, a low-priority thread, too
// often.
absl::Status WriteStraight(RandomAccessFile& file, int64_t offset,
                           absl::string_view bytes);

// The error of a read at `offset` that returned `count` bytes of `wanted`.
absl::Status EndsEarly(const std::string& path, int64_t offset, int64_t count,
                       size_t wanted);

}  // namespace atl::server
