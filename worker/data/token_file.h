// llm.c's token files, and a writer.
//
//   int32[256]  magic, version, token count; the rest is 0
//   tokens      little-endian: uint16 with magic 20240520 and version 1, uint32
//               with magic 20240801 and version 7
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"

namespace atl::worker {

struct TokenFileKind {
  int32_t magic = 0;
  int32_t version = 0;
  int64_t token_bytes = 0;
};
inline constexpr TokenFileKind kTokenFileKinds[] = {{20240520, 1, 2},
                                                    {20240801, 7, 4}};
inline constexpr int64_t kTokenFileHeaderBytes = 256 * 4;

// The header of a file with `token_count` tokens. Requires: `token_bytes` is
// one of kTokenFileKinds, `token_count` in [0, 2^31).
std::string MakeTokenFileHeader(int64_t token_bytes, int64_t token_count);

// Writes tokens to DIRECTORY/tokens_000000.bin, tokens_000001.bin, ...
class TokenFileWriter {
 public:
  static constexpr int64_t kFileTokensMax = int64_t{1} << 25;

  // Creates `directory` if necessary. Files have uint16 tokens if `vocab_size`
  // is at most 65536, otherwise uint32. A file has at most `file_tokens_max`
  // tokens, all buffered in memory. `file_system` must outlive the writer.
  //
  // ALREADY_EXISTS: the directory has a *.bin, which a reader would mix with
  // these. Others: the system's.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(
      FileSystem& file_system, const std::string& directory, int32_t vocab_size,
      int64_t file_tokens_max = kFileTokensMax);

  // Requires: tokens in [0, vocab_size). Full files are on disk on return.
  absl::Status Append(absl::Span<const int32_t> tokens);

  // Writes the rest. Files are whole or absent; after an error the last ones
  // are absent.
  absl::Status Finish();

  int64_t token_count() const { return token_count_; }
  int64_t token_bytes() const { return kind_.token_bytes; }
  int file_count() const { return file_count_; }

 private:
  TokenFileWriter(FileSystem& file_system, std::string directory,
                  TokenFileKind kind, int64_t file_tokens_max);

  absl::Status WriteFile();

  FileSystem& file_system_;
  const std::string directory_;
  const TokenFileKind kind_;
  const int64_t file_tokens_max_;
  std::string file_;  // Header and tokens so far.
  int64_t token_count_ = 0;
  int file_count_ = 0;
};

}  // namespace atl::worker
