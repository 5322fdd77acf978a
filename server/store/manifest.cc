#include "server/store/manifest.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace atl::server {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr char kKind[] = "atoll shard checkpoint";

// False if `json` has no such field of this type.
bool Read(const Json& json, const char* name, std::string* out) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_string()) return false;
  *out = it->get<std::string>();
  return true;
}

template <typename Integer>
bool Read(const Json& json, const char* name, Integer* out) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_number_integer()) return false;
  *out = it->get<Integer>();
  return true;
}

bool ReadEntry(const Json& json, ManifestFile* file) {
  return json.is_object() && Read(json, "fragment", &file->fragment) &&
         Read(json, "version", &file->version) &&
         Read(json, "commit_seq", &file->commit_seq) &&
         Read(json, "shard_digest", &file->shard_digest) &&
         Read(json, "digest", &file->digest) &&
         Read(json, "file", &file->file) &&
         Read(json, "size_bytes", &file->size_bytes) &&
         Read(json, "sha256", &file->sha256);
}

absl::Status Misfit(absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("not a manifest that this program can read: ", why));
}

}  // namespace

std::string ToJson(const Manifest& manifest) {
  OrderedJson json;
  json["format"] = kFormat;
  json["kind"] = kKind;
  json["run_id"] = manifest.run_id;
  json["run_epoch"] = manifest.run_epoch;
  json["pin_id"] = manifest.pin_id;
  json["commit_seq"] = manifest.commit_seq;
  json["layout_fingerprint"] =
      absl::StrFormat("%016x", manifest.layout_fingerprint);
  json["shard"] = manifest.shard;
  json["shard_count"] = manifest.shard_count;
  json["parent"] = nullptr;
  if (!manifest.parent_pin_id.empty()) {
    json["parent"] = {{"pin_id", manifest.parent_pin_id},
                      {"sha256", manifest.parent_sha256}};
  }
  json["files"] = OrderedJson::array();
  for (const ManifestFile& file : manifest.files) {
    OrderedJson entry;
    entry["fragment"] = file.fragment;
    entry["version"] = file.version;
    entry["commit_seq"] = file.commit_seq;
    entry["shard_digest"] = file.shard_digest;
    entry["digest"] = file.digest;
    entry["file"] = file.file;
    entry["size_bytes"] = file.size_bytes;
    entry["sha256"] = file.sha256;
    json["files"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Misfit("it is not a JSON object");
  int format = 0;
  std::string kind;
  if (!Read(json, "format", &format) || format != kFormat ||
      !Read(json, "kind", &kind) || kind != kKind) {
    return Misfit("its format or kind differs");
  }
  Manifest manifest;
  std::string fingerprint;
  if (!Read(json, "run_id", &manifest.run_id) ||
      !Read(json, "run_epoch", &manifest.run_epoch) ||
      !Read(json, "pin_id", &manifest.pin_id) ||
      !Read(json, "commit_seq", &manifest.commit_seq) ||
      !Read(json, "layout_fingerprint", &fingerprint) ||
      !absl::SimpleHexAtoi(fingerprint, &manifest.layout_fingerprint) ||
      !Read(json, "shard", &manifest.shard) ||
      !Read(json, "shard_count", &manifest.shard_count)) {
    return Misfit("a field is missing or of another type");
  }
  const auto parent = json.find("parent");
  if (parent != json.end() && parent->is_object() &&
      (!Read(*parent, "pin_id", &manifest.parent_pin_id) ||
       !Read(*parent, "sha256", &manifest.parent_sha256))) {
    return Misfit("its parent has no pin_id or sha256");
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) {
    return Misfit("it lists no files");
  }
  for (const Json& entry : *files) {
    ManifestFile file;
    if (!ReadEntry(entry, &file)) return Misfit("a file entry lacks a field");
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace atl::server
