#include "worker/data/manifest.h"

#include <initializer_list>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/object_store/object_url.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/token_file.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr size_t kPathBytesMax = 1024;
constexpr size_t kQuoteMax = 80;

struct FormatWord {
  v1::DataFormat format;
  absl::string_view word;
};
constexpr FormatWord kFormatWords[] = {{v1::DATA_FORMAT_BYTES, "bytes"},
                                       {v1::DATA_FORMAT_LLMC, "llmc"},
                                       {v1::DATA_FORMAT_UINT16, "uint16"}};

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kQuoteMax)),
                      text.size() > kQuoteMax ? "..." : "", "\"");
}

// `object` has exactly `keys`.
absl::Status CheckKeys(const Json& object,
                       std::initializer_list<absl::string_view> keys) {
  if (!object.is_object()) return Wrong("is not an object");
  for (const absl::string_view key : keys) {
    if (!object.contains(std::string(key))) {
      return Wrong(absl::StrCat("has no key ", Quote(key)));
    }
  }
  for (const auto& [key, value] : object.items()) {
    if (absl::c_linear_search(keys, key)) continue;
    return Wrong(absl::StrCat("has the unknown key ", Quote(key),
                              "; its keys are ", absl::StrJoin(keys, ", ")));
  }
  return absl::OkStatus();
}

absl::Status ReadText(const Json& object, const char* key, std::string* out) {
  const Json& value = object.at(key);
  if (!value.is_string()) return Wrong(absl::StrCat(key, " is not a string"));
  *out = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadCount(const Json& object, const char* key, int64_t* out) {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    return Wrong(absl::StrCat(key, " is not a whole number"));
  }
  *out = value.get<int64_t>();
  return absl::OkStatus();
}

absl::StatusOr<ManifestFile> ReadEntry(const Json& entry) {
  RETURN_IF_ERROR(
      CheckKeys(entry, {"path", "bytes", "sha256", "tokens", "held_out"}));
  ManifestFile file;
  RETURN_IF_ERROR(ReadText(entry, "path", &file.path));
  RETURN_IF_ERROR(ReadCount(entry, "bytes", &file.size_bytes));
  RETURN_IF_ERROR(ReadText(entry, "sha256", &file.sha256));
  RETURN_IF_ERROR(ReadCount(entry, "tokens", &file.token_count));
  if (!entry["held_out"].is_boolean()) {
    return Wrong("held_out is neither true nor false");
  }
  file.is_held_out = entry["held_out"].get<bool>();
  return file;
}

// Refuses what would take much more memory than its text: deep nesting, and more
// values than the largest manifest has.
absl::Status CheckShape(absl::string_view text) {
  constexpr int kDepthMax = 3;
  constexpr int64_t kSeparatorsMax = 6 * Manifest::kFilesMax + 100;
  int depth = 0;
  int64_t separators = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
      continue;
    }
    if (c == '"') in_text = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',') ++separators;
    if (depth > kDepthMax || separators > kSeparatorsMax) {
      return Wrong("is not JSON of a manifest: it nests deeper, or has more "
                   "values");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ReadManifest(absl::string_view text) {
  if (static_cast<int64_t>(text.size()) > Manifest::kTextBytesMax) {
    return Wrong(
        absl::StrCat("has more than ", Manifest::kTextBytesMax, " bytes"));
  }
  RETURN_IF_ERROR(CheckShape(text));
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (json.is_discarded()) return Wrong("is not JSON");
  if (json.is_object() && json.contains("version") &&
      json["version"] != kVersion) {
    return Wrong(absl::StrCat("its version is not ", kVersion,
                              ": a newer program wrote it; upgrade this one"));
  }
  RETURN_IF_ERROR(CheckKeys(json, {"version", "format", "shards"}));
  Manifest manifest;
  std::string word;
  RETURN_IF_ERROR(ReadText(json, "format", &word));
  ASSIGN_OR_RETURN(manifest.format, ParseFormatWord(word));
  const Json& shards = json["shards"];
  if (!shards.is_array()) return Wrong("shards is not a list");
  if (shards.size() > Manifest::kFilesMax) {
    return Wrong(absl::StrCat("has ", shards.size(), " shards, more than ",
                              Manifest::kFilesMax));
  }
  for (const Json& entry : shards) {
    absl::StatusOr<ManifestFile> file = ReadEntry(entry);
    if (!file.ok()) {
      return Annotate(file.status(),
                      absl::StrCat("shards[", manifest.files.size(), "]"));
    }
    manifest.files.push_back(*std::move(file));
  }
  RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

absl::Status CheckPath(absl::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax) {
    return Wrong(absl::StrCat("its path has ", path.size(),
                              " bytes; must have 1 to ", kPathBytesMax));
  }
  for (const unsigned char c : path) {
    if (absl::ascii_iscntrl(c))
      return Wrong("its path has a control character");
  }
  // Also refuses absolute paths: their first part is empty.
  return CheckRelativeName(path);
}

// Bytes of a token of `file`; 0: its size does not match its tokens.
int64_t TokenBytesOf(const ManifestFile& file, v1::DataFormat format) {
  const auto fits = [&](int64_t header_bytes, int64_t token_bytes) {
    return file.size_bytes == header_bytes + token_bytes * file.token_count;
  };
  switch (format) {
    case v1::DATA_FORMAT_BYTES:
      return fits(0, 1) ? 1 : 0;
    case v1::DATA_FORMAT_UINT16:
      return fits(0, 2) ? 2 : 0;
    case v1::DATA_FORMAT_LLMC:
      for (const TokenFileKind& kind : kTokenFileKinds) {
        if (fits(kTokenFileHeaderBytes, kind.token_bytes)) {
          return kind.token_bytes;
        }
      }
      return 0;
    default:
      return 0;
  }
}

absl::Status CheckFile(const ManifestFile& file, v1::DataFormat format) {
  RETURN_IF_ERROR(CheckPath(file.path));
  if (!IsLowerHex(file.sha256, 64)) {
    return Wrong("its sha256 is not 64 lower-case hex digits");
  }
  if (file.size_bytes < 1 || file.size_bytes > Manifest::kFileBytesMax) {
    return Wrong(absl::StrCat("it has ", file.size_bytes,
                              " bytes; must be in [1, ",
                              Manifest::kFileBytesMax, "]"));
  }
  if (file.token_count < 2 || file.token_count > Manifest::kFileBytesMax) {
    return Wrong(absl::StrCat("it has ", file.token_count,
                              " tokens; a window takes at least 2"));
  }
  if (TokenBytesOf(file, format) == 0) {
    return Wrong(absl::StrCat(file.size_bytes, " bytes are not ",
                              file.token_count, " tokens in the format ",
                              GetFormatWord(format)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> ParseManifest(absl::string_view text,
                                       absl::string_view name) {
  absl::StatusOr<Manifest> manifest = ReadManifest(text);
  if (manifest.ok()) return manifest;
  return Annotate(manifest.status(), absl::StrCat("manifest ", name));
}

absl::Status CheckManifest(const Manifest& manifest) {
  if (GetFormatWord(manifest.format).empty()) return Wrong("has no format");
  if (manifest.files.size() > Manifest::kFilesMax) {
    return Wrong(absl::StrCat("has ", manifest.files.size(),
                              " shards, more than ", Manifest::kFilesMax));
  }
  absl::flat_hash_set<absl::string_view> paths;
  bool has_training = false;
  for (const ManifestFile& file : manifest.files) {
    RETURN_IF_ERROR(Annotate(CheckFile(file, manifest.format),
                             absl::StrCat("shard ", Quote(file.path))));
    if (!paths.insert(file.path).second) {
      return Wrong(absl::StrCat("shard ", Quote(file.path), " is there twice"));
    }
    if (TokenBytesOf(file, manifest.format) != GetTokenBytes(manifest)) {
      return Wrong(absl::StrCat(
          "shards ", Quote(manifest.files[0].path), " and ", Quote(file.path),
          " have tokens of different sizes: make both with one tokenizer"));
    }
    has_training = has_training || !file.is_held_out;
  }
  if (!has_training) {
    return Wrong(
        "has no shard to train on: it lists none, or all are held out");
  }
  return absl::OkStatus();
}

std::string WriteManifest(const Manifest& manifest) {
  std::string text =
      absl::StrCat("{\"version\": ", kVersion, ", \"format\": \"",
                   GetFormatWord(manifest.format), "\", \"shards\": [");
  absl::string_view separator = "\n";
  for (const ManifestFile& file : manifest.files) {
    absl::StrAppend(&text, separator, " {\"path\": ",
                    Json(file.path).dump(-1, ' ', /*ensure_ascii=*/false,
                                         Json::error_handler_t::replace),
                    ", \"bytes\": ", file.size_bytes, ", \"sha256\": \"",
                    file.sha256, "\", \"tokens\": ", file.token_count,
                    ", \"held_out\": ", file.is_held_out ? "true" : "false",
                    "}");
    separator = ",\n";
  }
  return absl::StrCat(text, "\n]}\n");
}

std::string ComputeFingerprint(const Manifest& manifest) {
  std::string text =
      absl::StrCat("atoll data 2 ", static_cast<int>(manifest.format), "\n");
  for (const ManifestFile& file : manifest.files) {
    absl::StrAppend(&text, file.size_bytes, " ", file.sha256, " ",
                    file.token_count, " ", file.is_held_out ? 1 : 0, " ",
                    file.path, "\n");
  }
  return codec::ToHex(codec::ComputeSha256(text));
}

int64_t GetTokenBytes(const Manifest& manifest) {
  return TokenBytesOf(manifest.files[0], manifest.format);
}

std::vector<int32_t> FindFiles(const Manifest& manifest, bool is_held_out) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    if (manifest.files[i].is_held_out == is_held_out) {
      found.push_back(static_cast<int32_t>(i));
    }
  }
  return found;
}

std::string GetFormatWord(v1::DataFormat format) {
  for (const FormatWord& known : kFormatWords) {
    if (known.format == format) return std::string(known.word);
  }
  return "";
}

absl::StatusOr<v1::DataFormat> ParseFormatWord(absl::string_view word) {
  for (const FormatWord& known : kFormatWords) {
    if (known.word == word) return known.format;
  }
  return Wrong(absl::StrCat("the format ", Quote(word),
                            " is not known: bytes, llmc or uint16"));
}

}  // namespace atl::worker
