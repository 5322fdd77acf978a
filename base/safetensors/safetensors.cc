#include "base/safetensors/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl {
namespace {

using Json = nlohmann::json;

constexpr size_t kAlignment = 8;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("its safetensors header is wrong: ", what));
}

int64_t ElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") {
    return 2;
  }
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" ||
      dtype == "F8_E4M3" || dtype == "F8_E5M2") {
    return 1;
  }
  return 0;
}

bool GetInt(const Json& json, int64_t& value) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return false;
  }
  value = json.get<int64_t>();
  return value >= 0;
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name,
                                            const Json& json) {
  SafetensorsEntry entry;
  entry.name = name;
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string() || shape == json.end() ||
      !shape->is_array() || offsets == json.end() || !offsets->is_array() ||
      offsets->size() != 2) {
    return Wrong(absl::StrCat("tensor ", name, " lacks a field"));
  }
  entry.dtype = dtype->get<std::string>();
  int64_t bytes = ElementBytes(entry.dtype);
  if (bytes == 0) {
    return Wrong(absl::StrCat("tensor ", name, " has an unknown dtype"));
  }
  for (const Json& dimension : *shape) {
    int64_t size = 0;
    if (!GetInt(dimension, size) ||
        (size > 0 && bytes > INT64_MAX / size)) {
      return Wrong(absl::StrCat("tensor ", name, " has an impossible shape"));
    }
    entry.shape.push_back(size);
    bytes *= size;
  }
  if (!GetInt((*offsets)[0], entry.begin) ||
      !GetInt((*offsets)[1], entry.end) || entry.begin > entry.end ||
      entry.end - entry.begin != bytes) {
    return Wrong(absl::StrCat("tensor ", name,
                              " has offsets that its shape does not fit"));
  }
  return entry;
}

}  // namespace

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool HasShape(const SafetensorsEntry& entry, absl::Span<const int64_t> shape) {
  if (entry.shape.empty()) return shape.size() == 1 && shape[0] == 1;
  return absl::MakeConstSpan(entry.shape) == shape;
}

std::string SafetensorsPreamble(
    std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  int64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.dtype = "F32";
    int64_t bytes = 4;
    for (const int64_t dimension : entry.shape) bytes *= dimension;
    entry.begin = offset;
    entry.end = offset + bytes;
    offset = entry.end;
    json[entry.name] = {{"dtype", entry.dtype},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::string preamble(sizeof(uint64_t), '\0');
  const uint64_t length = text.size();
  std::memcpy(preamble.data(), &length, sizeof(length));
  return preamble + text;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    absl::string_view text, int64_t data_bytes) {
  // The parsed object keeps one of two repeated names, so count keys here.
  absl::flat_hash_set<std::string> names;
  bool doubled = false;
  const auto on_event = [&](int depth, Json::parse_event_t event,
                            Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      doubled |= !names.insert(parsed.get<std::string>()).second;
    }
    return depth < 8;
  };
  const Json json = Json::parse(text.begin(), text.end(), on_event,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("it is not a JSON object");
  if (doubled) return Wrong("a name comes twice");
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    if (!value.is_object()) return Wrong("an entry is not an object");
    ASSIGN_OR_RETURN(SafetensorsEntry entry, ParseEntry(name, value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != offset) {
      return Wrong(absl::StrCat("tensor ", entry.name,
                                " overlaps another or leaves a gap"));
    }
    offset = entry.end;
  }
  if (offset != data_bytes) {
    return Wrong(absl::StrCat("its tensors take ", offset,
                              " bytes, but the file has ", data_bytes));
  }
  return entries;
}

}  // namespace atl
