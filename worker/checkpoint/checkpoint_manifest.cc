#include "worker/checkpoint/checkpoint_manifest.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr char kUnfinished[] = "unfinished";
constexpr char kKind[] = "atoll checkpoint";

std::string GetText(const Json &json, const char *name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

int64_t GetCount(const Json &json, const char *name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer()
             ? found->get<int64_t>()
             : 0;
}

bool IsFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == absl::string_view::npos &&
         name.find('\0') == absl::string_view::npos;
}

}  // namespace

std::string WriteCheckpointManifest(const CheckpointManifest &manifest) {
  OrderedJson json;
  if (manifest.is_finished) {
    json["format"] = kFormat;
  } else {
    json["format"] = kUnfinished;
  }
  json["kind"] = kKind;
  if (!manifest.architecture.empty()) {
    json["architecture"] = manifest.architecture;
  }
  json["run_id"] = manifest.source.run_id;
  json["run_uid"] = manifest.source.run_uid;
  json["run_epoch"] = manifest.source.run_epoch;
  json["commit_seq"] = manifest.source.commit_seq;
  json["version"] = manifest.source.version;
  json["layout_fingerprint"] = manifest.layout_fingerprint;
  json["element_count"] = manifest.element_count;
  json["parameters_sha256"] = manifest.parameters_sha256;
  json["files"] = OrderedJson::array();
  for (const CheckpointManifest::File &file : manifest.files) {
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.size_bytes},
                             {"sha256", file.sha256}});
  }
  // An unreadable byte in an old manifest's name must not throw.
  return absl::StrCat(
      json.dump(2, ' ', false, OrderedJson::error_handler_t::replace), "\n");
}

std::optional<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || GetText(json, "kind") != kKind) return std::nullopt;
  CheckpointManifest manifest;
  manifest.is_finished = json.value("format", Json()) == kFormat;
  if (!manifest.is_finished && GetText(json, "format") != kUnfinished) {
    return std::nullopt;
  }
  manifest.source.run_id = GetText(json, "run_id");
  manifest.source.run_uid = GetText(json, "run_uid");
  manifest.source.run_epoch = GetCount(json, "run_epoch");
  manifest.source.commit_seq = GetCount(json, "commit_seq");
  manifest.source.version = GetCount(json, "version");
  manifest.architecture = GetText(json, "architecture");
  manifest.layout_fingerprint = GetText(json, "layout_fingerprint");
  manifest.element_count = GetCount(json, "element_count");
  manifest.parameters_sha256 = GetText(json, "parameters_sha256");
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) return std::nullopt;
  for (const Json &entry : *files) {
    if (!entry.is_object()) return std::nullopt;
    CheckpointManifest::File file;
    file.name = GetText(entry, "name");
    file.size_bytes = GetCount(entry, "bytes");
    file.sha256 = GetText(entry, "sha256");
    if (!IsFileName(file.name)) return std::nullopt;
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace atl::worker
