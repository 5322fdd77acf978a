// The manifest of a published data set: its files, in order. Pure. Thread-safe.
//
//   {"version": 1,
//    "format": "llmc",
//    "shards": [
//      {"path": "tokens_000000.bin", "bytes": 67109888, "sha256": "64 digits",
//       "tokens": 33554432, "held_out": false},
//      ...]}
//
// Paths are relative to the manifest's directory. The manifest alone decides
// which tokens a run reads, and in which order: worker/data/DESIGN.md.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// The file of a data set that names the others.
inline constexpr char kDataManifestName[] = "manifest.json";

struct ManifestFile {
  std::string path;         // Its parts have no "." or "..".
  int64_t size_bytes = 0;   // > 0.
  std::string sha256;       // Whole file's: 64 lower-case hex digits.
  int64_t token_count = 0;  // >= 2: the smallest window.
  bool is_held_out = false;
};

struct Manifest {
  static constexpr int64_t kTextBytesMax = int64_t{64} << 20;
  static constexpr int32_t kFilesMax = 100000;
  static constexpr int64_t kFileBytesMax = int64_t{1} << 40;

  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;
  std::vector<ManifestFile> files;
};

// Parses a manifest. `name` is its URL or path in messages.
//
// INVALID_ARGUMENT: more than kTextBytesMax; not JSON of this form; an unknown
// key, version or format; or CheckManifest fails. The message names the file.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text,
                                       absl::string_view name);

// INVALID_ARGUMENT: no files or too many; a wrong or repeated path; a wrong
// SHA-256; a size out of range or that does not match the tokens; files with
// tokens of different sizes; all files are held out.
absl::Status CheckManifest(const Manifest& manifest);

// The text of a manifest. Equal manifests have equal texts.
std::string WriteManifest(const Manifest& manifest);

// SHA-256 in hex; DESIGN.md, Fingerprint, defines it.
std::string ComputeFingerprint(const Manifest& manifest);

// Bytes of a token: 1, 2 or 4. Requires: CheckManifest accepts `manifest`.
int64_t GetTokenBytes(const Manifest& manifest);

// Indices into `files` of those that are held out, or not, in order.
std::vector<int32_t> FindFiles(const Manifest& manifest, bool is_held_out);

// A format's word in manifests and run files: "bytes", "llmc" or "uint16".
std::string GetFormatWord(v1::DataFormat format);
// INVALID_ARGUMENT: `word` is none of the three.
absl::StatusOr<v1::DataFormat> ParseFormatWord(absl::string_view word);

}  // namespace atl::worker
