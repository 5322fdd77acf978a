// The first 4096 bytes of every file of ours: a magic number, a format number
// and a message, checked by a CRC. DESIGN.md, "Header page".

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
// Bytes of what is padded to whole pages, as all is that lies between header
// page and table.
inline constexpr int64_t PaddedBytes(int64_t bytes) {
  return (bytes + kHeaderPageBytes - 1) / kHeaderPageBytes * kHeaderPageBytes;
}
// Of all files and records of a server.
inline constexpr uint32_t kFormatNumber = 1;

// The page, kHeaderPageBytes long. `magic` has 8 characters.
//
// INVALID_ARGUMENT: the message is too long.
absl::StatusOr<std::string> EncodeHeaderPage(
    absl::string_view magic, const google::protobuf::MessageLite& message);

// Reads a page into `message`.
//
// DATA_LOSS: it is damaged or of another kind or format; the message names
// `path`.
absl::Status DecodeHeaderPage(absl::string_view page, absl::string_view magic,
                              const std::string& path,
                              google::protobuf::MessageLite* message);

// Reads exactly out.size() bytes of the file at `path`.
//
// DATA_LOSS: it is shorter, or cannot be read; the message names `path`.
absl::Status ReadFully(const RandomAccessFile& file, const std::string& path,
                       int64_t offset, absl::Span<char> out);

// Writes `bytes` past the system's cache (RandomAccessFile::WriteStraightAt),
// some at a time: the small records of others, which are synced before anyone
// goes on, wait that long for the disk; and a thread of low priority that is
// woken for less is behind.
absl::Status WriteStraight(RandomAccessFile& file, int64_t offset,
                           absl::string_view bytes);

// The error of a read at `offset` that gave `count` bytes of `wanted`.
absl::Status EndsEarly(const std::string& path, int64_t offset, int64_t count,
                       size_t wanted);

}  // namespace atl::server
