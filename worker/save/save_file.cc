#include "worker/save/save_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

constexpr char kMagic[] = "ATOLLSAV";
constexpr int64_t kMagicBytes = 8;
constexpr int64_t kPreambleBytes = kMagicBytes + 3 * sizeof(uint32_t);
constexpr uint32_t kHeaderBytesMax = 16 << 20;

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the save is damaged: ", what));
}

// Calls `take(name, member)` for each member of a SaveBulk, in the order of the
// file.
template <typename Bulk, typename Take>
void ForEachSection(Bulk& bulk, const Take& take) {
  take("first_moment", bulk.first_moment);
  take("second_moment", bulk.second_moment);
  take("local", bulk.local);
  take("eager_momentum", bulk.eager_momentum);
  take("eager_others", bulk.eager_others);
  take("eager_foreseen", bulk.eager_foreseen);
}

constexpr char kContribution[] = "contribution";

Json SectionJson(absl::string_view name, absl::string_view bytes) {
  return {{"name", std::string(name)},
          {"bytes", bytes.size()},
          {"crc32c", codec::Crc32c(bytes)}};
}

Json HeaderJson(const SaveHeader& header) {
  Json json = {
      {"run_id", header.run_id},
      {"run_epoch", header.run_epoch},
      {"slot", header.slot},
      {"seq", header.seq},
      {"step", header.step},
      {"data_shard", header.data_shard},
      {"data_position", header.data_position},
      {"optimizer_step_count", header.optimizer_step_count},
      {"restart_step_count", header.restart_step_count},
      {"evaluator_version", header.evaluator_version},
      {"evaluator_index", header.evaluator_index},
      {"evaluator_count", header.evaluator_count},
  };
  json["clock"] = header.clock;
  json["rate_offset"] = header.rate_offset;
  json["tracks"] = Json::array();
  for (const SavedTrack& track : header.tracks) {
    json["tracks"].push_back({{"fragment", track.fragment},
                              {"local_version", track.local_version},
                              {"since_step", track.since_step},
                              {"data_begin", track.data_begin},
                              {"seq", track.seq},
                              {"push_step", track.push_step}});
  }
  json["contributions"] = Json::array();
  for (const v1::ContributionInfo& info : header.contributions) {
    json["contributions"].push_back(
        absl::BytesToHexString(info.SerializeAsString()));
  }
  return json;
}

// Reads an integer; false if it is not there.
template <typename T>
bool Get(const Json& json, const char* name, T& value) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return false;
  value = found->template get<T>();
  return true;
}

absl::Status ParseTracks(const Json& json, SaveHeader& header) {
  const auto tracks = json.find("tracks");
  if (tracks == json.end() || !tracks->is_array()) {
    return Damaged("its header has no tracks");
  }
  for (const Json& track : *tracks) {
    SavedTrack& saved = header.tracks.emplace_back();
    if (!track.is_object() || !Get(track, "fragment", saved.fragment) ||
        !Get(track, "local_version", saved.local_version) ||
        !Get(track, "since_step", saved.since_step) ||
        !Get(track, "data_begin", saved.data_begin) ||
        !Get(track, "seq", saved.seq) ||
        !Get(track, "push_step", saved.push_step)) {
      return Damaged("a track lacks a number");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SaveHeader> ParseHeader(const Json& json) {
  SaveHeader header;
  const auto run_id = json.find("run_id");
  if (run_id == json.end() || !run_id->is_string()) {
    return Damaged("its header has no run_id");
  }
  header.run_id = run_id->get<std::string>();
  if (!Get(json, "run_epoch", header.run_epoch) ||
      !Get(json, "slot", header.slot) || !Get(json, "seq", header.seq) ||
      !Get(json, "step", header.step) ||
      !Get(json, "data_shard", header.data_shard) ||
      !Get(json, "data_position", header.data_position) ||
      !Get(json, "optimizer_step_count", header.optimizer_step_count) ||
      !Get(json, "restart_step_count", header.restart_step_count) ||
      !Get(json, "evaluator_version", header.evaluator_version) ||
      !Get(json, "evaluator_index", header.evaluator_index) ||
      !Get(json, "evaluator_count", header.evaluator_count) ||
      !Get(json, "clock", header.clock) ||
      !Get(json, "rate_offset", header.rate_offset)) {
    return Damaged("its header lacks a number");
  }
  RETURN_IF_ERROR(ParseTracks(json, header));
  const auto contributions = json.find("contributions");
  if (contributions == json.end() || !contributions->is_array()) {
    return Damaged("its header has no contributions");
  }
  for (const Json& hex : *contributions) {
    v1::ContributionInfo info;
    if (!hex.is_string() ||
        !info.ParseFromString(absl::HexStringToBytes(hex.get<std::string>()))) {
      return Damaged("a contribution's description cannot be read");
    }
    header.contributions.push_back(std::move(info));
  }
  return header;
}

absl::Status ReadExactly(const RandomAccessFile& file, int64_t offset,
                         absl::Span<char> out) {
  ASSIGN_OR_RETURN(const int64_t got, file.ReadAt(offset, out));
  if (got != static_cast<int64_t>(out.size())) {
    return Damaged("it ends too early");
  }
  return absl::OkStatus();
}

// Reads one section of floats; moves `offset` past it.
absl::StatusOr<std::vector<float>> ReadSection(const RandomAccessFile& file,
                                               const Json& section,
                                               int64_t file_bytes,
                                               int64_t& offset) {
  int64_t bytes = 0;
  uint32_t crc = 0;
  if (!section.is_object() || !Get(section, "bytes", bytes) ||
      !Get(section, "crc32c", crc) || bytes < 0 ||
      bytes % static_cast<int64_t>(sizeof(float)) != 0 ||
      bytes > file_bytes - offset) {
    return Damaged("a section does not fit into it");
  }
  std::vector<float> values(bytes / sizeof(float));
  RETURN_IF_ERROR(ReadExactly(
      file, offset, {reinterpret_cast<char*>(values.data()),
                     static_cast<size_t>(bytes)}));
  offset += bytes;
  if (codec::Crc32c(BytesOf(values)) != crc) {
    return Damaged("a section's checksum does not match");
  }
  return values;
}

absl::StatusOr<Json> ReadHeaderJson(const RandomAccessFile& file,
                                    int64_t& offset) {
  char preamble[kPreambleBytes];
  RETURN_IF_ERROR(ReadExactly(file, 0, absl::MakeSpan(preamble)));
  uint32_t numbers[3];
  std::memcpy(numbers, preamble + kMagicBytes, sizeof(numbers));
  if (std::memcmp(preamble, kMagic, kMagicBytes) != 0) {
    return Damaged("it does not begin as one");
  }
  if (numbers[0] != kSaveFormat) {
    return absl::DataLossError(
        absl::StrCat("the save has format ", numbers[0], ", this program reads ",
                     kSaveFormat));
  }
  if (numbers[1] > kHeaderBytesMax) return Damaged("its header is too long");
  std::string text(numbers[1], '\0');
  RETURN_IF_ERROR(ReadExactly(file, kPreambleBytes, absl::MakeSpan(text)));
  if (codec::Crc32c(text) != numbers[2]) {
    return Damaged("its header's checksum does not match");
  }
  offset = kPreambleBytes + numbers[1];
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("its header is not JSON");
  return json;
}

}  // namespace

absl::Status WriteSave(
    FileSystem& file_system, const std::string& path, const SaveHeader& header,
    const SaveBulk<absl::Span<const float>>& bulk,
    absl::Span<const absl::Span<const float>> contributions) {
  std::vector<absl::string_view> sections;
  Json json = HeaderJson(header);
  json["sections"] = Json::array();
  const auto add = [&](absl::string_view name,
                       absl::Span<const float> values) {
    if (values.empty() && name != kContribution) return;
    sections.push_back(BytesOf(values));
    json["sections"].push_back(SectionJson(name, sections.back()));
  };
  ForEachSection(bulk, add);
  for (const absl::Span<const float> values : contributions) {
    add(kContribution, values);
  }
  const std::string text = json.dump();
  const uint32_t numbers[3] = {kSaveFormat, static_cast<uint32_t>(text.size()),
                               codec::Crc32c(text)};
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(file_system, path));
  RETURN_IF_ERROR(file->Append(absl::string_view(kMagic, kMagicBytes)));
  RETURN_IF_ERROR(file->Append(absl::string_view(
      reinterpret_cast<const char*>(numbers), sizeof(numbers))));
  RETURN_IF_ERROR(file->Append(text));
  for (const absl::string_view section : sections) {
    RETURN_IF_ERROR(file->Append(section));
  }
  return file->Commit();
}

absl::StatusOr<Save> ReadSave(FileSystem& file_system,
                              const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   file_system.OpenForRead(path));
  ASSIGN_OR_RETURN(const int64_t file_bytes, file->Size());
  int64_t offset = 0;
  ASSIGN_OR_RETURN(const Json json, ReadHeaderJson(*file, offset));
  Save save;
  ASSIGN_OR_RETURN(save.header, ParseHeader(json));
  const auto sections = json.find("sections");
  if (sections == json.end() || !sections->is_array()) {
    return Damaged("its header has no sections");
  }
  for (const Json& section : *sections) {
    const auto name = section.is_object() ? section.find("name")
                                          : section.end();
    if (name == section.end() || !name->is_string()) {
      return Damaged("a section has no name");
    }
    ASSIGN_OR_RETURN(std::vector<float> values,
                     ReadSection(*file, section, file_bytes, offset));
    const std::string text = name->get<std::string>();
    if (text == kContribution) {
      save.contributions.push_back(std::move(values));
      continue;
    }
    bool known = false;
    ForEachSection(static_cast<SaveBulk<std::vector<float>>&>(save),
                   [&](absl::string_view member_name,
                       std::vector<float>& member) {
                     if (text != member_name) return;
                     known = true;
                     member = std::move(values);
                   });
    if (!known) return Damaged("a section is of no kind that a save has");
  }
  if (save.contributions.size() != save.header.contributions.size()) {
    return Damaged("it has not as many contributions as it says");
  }
  if (offset != file_bytes) return Damaged("it is longer than it says");
  return save;
}

}  // namespace atl::worker
