#include "worker/save/save_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/codec/sha256.h"
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

absl::string_view AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

absl::string_view AsBytes(absl::Span<const char> bytes) {
  return {bytes.data(), bytes.size()};
}

std::string ToHex(const google::protobuf::MessageLite& message) {
  return absl::BytesToHexString(message.SerializeAsString());
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the local checkpoint is damaged: ", what));
}

// Calls `take(member)` for each member of a SaveArrays, in file order.
template <typename Arrays, typename Take>
void ForEachArray(Arrays& arrays, const Take& take) {
  take(arrays.first_moment);
  take(arrays.second_moment);
  take(arrays.local);
  take(arrays.eager_momentum);
  take(arrays.eager_foreseen);
}

constexpr size_t kArrayCount = 5;

Json SectionJson(absl::string_view bytes) {
  return {{"bytes", bytes.size()}, {"crc32c", codec::Crc32c(bytes)}};
}

Json HeaderJson(const SaveHeader& header) {
  const SaveSummary& summary = header.summary;
  Json json = {
      {"run_id", summary.run_id},
      {"run_epoch", summary.run_epoch},
      {"slot", summary.slot},
      {"seq", summary.seq},
      {"step", header.step},
      {"data_shard", summary.data_shard},
      {"data_position", summary.data_position},
      {"optimizer_step_count", header.optimizer_step_count},
      {"restart_step_count", header.restart_step_count},
      {"evaluator_version", summary.evaluator_version},
      {"evaluator_index", summary.evaluator_index},
      {"evaluator_count", summary.evaluator_count},
      {"clock", summary.clock},
      {"rate_offset", summary.rate_offset},
  };
  json["tracks"] = Json::array();
  for (const SavedTrack& track : summary.tracks) {
    json["tracks"].push_back({{"fragment", track.fragment},
                              {"local_version", track.local_version},
                              {"since_step", track.since_step},
                              {"data_begin", track.data_begin},
                              {"seq", track.seq},
                              {"push_step", track.push_step}});
  }
  if (!header.run_uid.empty()) json["run_uid"] = header.run_uid;
  if (!header.token_counts.empty()) {
    json["trainer_save_id"] = header.trainer_save_id;
    json["token_counts"] = header.token_counts;
  }
  if (!header.log.cluster_id().empty()) json["log"] = ToHex(header.log);
  // Omitted if all is held, which keeps such files unchanged.
  if (header.held.has_value()) {
    json["held"] = Json::array();
    for (const IndexRange range : *header.held) {
      json["held"].push_back({range.begin, range.end});
    }
  }
  return json;
}

template <typename T>
bool Get(const Json& json, const char* name, T& value) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return false;
  value = found->template get<T>();
  return true;
}

// Reads the list of messages `name`, each in hex.
template <typename Message>
absl::StatusOr<std::vector<Message>> GetMessages(const Json& json,
                                                 const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) {
    return Damaged(absl::StrCat("its header has no ", name));
  }
  std::vector<Message> messages;
  for (const Json& hex : *found) {
    Message message;
    if (!hex.is_string() || !message.ParseFromString(absl::HexStringToBytes(
                                hex.get<std::string>()))) {
      return Damaged(absl::StrCat("one of its ", name, " cannot be read"));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::Status ParseTracks(const Json& json, SaveSummary& summary) {
  const auto tracks = json.find("tracks");
  if (tracks == json.end() || !tracks->is_array()) {
    return Damaged("its header has no tracks");
  }
  for (const Json& track : *tracks) {
    SavedTrack& saved = summary.tracks.emplace_back();
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

// Files of older programs have neither.
absl::Status ParseOrigin(const Json& json, SaveHeader& header) {
  if (const auto uid = json.find("run_uid"); uid != json.end()) {
    if (!uid->is_string()) return Damaged("its run_uid is not text");
    header.run_uid = uid->get<std::string>();
  }
  if (const auto log = json.find("log"); log != json.end()) {
    if (!log->is_string() || !header.log.ParseFromString(absl::HexStringToBytes(
                                 log->get<std::string>()))) {
      return Damaged("its log position cannot be read");
    }
  }
  return absl::OkStatus();
}

absl::Status ParseTrainer(const Json& json, SaveHeader& header) {
  const auto save_id = json.find("trainer_save_id");
  if (save_id == json.end()) return absl::OkStatus();
  const auto counts = json.find("token_counts");
  if (!save_id->is_string() || counts == json.end() || !counts->is_array()) {
    return Damaged("its trainer's state is not described");
  }
  header.trainer_save_id = save_id->get<std::string>();
  for (const Json& count : *counts) {
    if (!count.is_number_integer()) return Damaged("a token count is invalid");
    header.token_counts.push_back(count.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::StatusOr<SaveHeader> ParseHeader(const Json& json) {
  SaveHeader header;
  SaveSummary& summary = header.summary;
  const auto run_id = json.find("run_id");
  if (run_id == json.end() || !run_id->is_string()) {
    return Damaged("its header has no run_id");
  }
  summary.run_id = run_id->get<std::string>();
  if (!Get(json, "run_epoch", summary.run_epoch) ||
      !Get(json, "slot", summary.slot) || !Get(json, "seq", summary.seq) ||
      !Get(json, "step", header.step) ||
      !Get(json, "data_shard", summary.data_shard) ||
      !Get(json, "data_position", summary.data_position) ||
      !Get(json, "optimizer_step_count", header.optimizer_step_count) ||
      !Get(json, "restart_step_count", header.restart_step_count) ||
      !Get(json, "evaluator_version", summary.evaluator_version) ||
      !Get(json, "evaluator_index", summary.evaluator_index) ||
      !Get(json, "evaluator_count", summary.evaluator_count) ||
      !Get(json, "clock", summary.clock) ||
      !Get(json, "rate_offset", summary.rate_offset)) {
    return Damaged("its header lacks a number");
  }
  RETURN_IF_ERROR(ParseTracks(json, summary));
  RETURN_IF_ERROR(ParseOrigin(json, header));
  RETURN_IF_ERROR(ParseTrainer(json, header));
  const auto held = json.find("held");
  if (held == json.end()) return header;
  if (!held->is_array()) return Damaged("held is not a list");
  header.held.emplace();
  for (const Json& range : *held) {
    if (!range.is_array() || range.size() != 2 ||
        !range[0].is_number_integer() || !range[1].is_number_integer()) {
      return Damaged("held is not a list of ranges");
    }
    header.held->push_back({range[0].get<int64_t>(), range[1].get<int64_t>()});
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

// Reads sections in order; their lengths were checked.
class SectionReader {
 public:
  SectionReader(const RandomAccessFile& file, int64_t offset,
                const Json& sections)
      : file_(file), offset_(offset), sections_(sections) {}

  // The next section, as values of T.
  template <typename T>
  absl::Status Next(std::vector<T>& values) {
    const Json& section = sections_[index_++];
    int64_t bytes = 0;
    uint32_t crc = 0;
    if (!Get(section, "bytes", bytes) || !Get(section, "crc32c", crc) ||
        bytes % static_cast<int64_t>(sizeof(T)) != 0) {
      return Damaged("a section holds a partial element");
    }
    values.resize(bytes / sizeof(T));
    RETURN_IF_ERROR(ReadExactly(
        file_, offset_,
        {reinterpret_cast<char*>(values.data()), static_cast<size_t>(bytes)}));
    offset_ += bytes;
    if (codec::Crc32c(AsBytes(absl::MakeConstSpan(values))) != crc) {
      return Damaged("a section's checksum does not match");
    }
    return absl::OkStatus();
  }

 private:
  const RandomAccessFile& file_;
  int64_t offset_;
  const Json& sections_;
  size_t index_ = 0;
};

absl::StatusOr<Json> ReadHeaderJson(const RandomAccessFile& file,
                                    int64_t& offset) {
  char preamble[kPreambleBytes];
  RETURN_IF_ERROR(ReadExactly(file, 0, absl::MakeSpan(preamble)));
  uint32_t numbers[3];
  std::memcpy(numbers, preamble + kMagicBytes, sizeof(numbers));
  if (std::memcmp(preamble, kMagic, kMagicBytes) != 0) {
    return Damaged("it does not begin with ATOLLSAV");
  }
  if (numbers[0] != kSaveFormat) {
    return absl::DataLossError(
        absl::StrCat("the local checkpoint has format ", numbers[0],
                     ", but this program reads ", kSaveFormat));
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

struct OpenedSave {
  std::unique_ptr<RandomAccessFile> file;
  int64_t file_bytes = 0;
  int64_t offset = 0;  // Of the first section.
  SaveOutline outline;
  Json sections;
};

// Checks the number and lengths of the sections.
absl::Status CheckSections(const OpenedSave& opened) {
  const Json& sections = opened.sections;
  if (!sections.is_array() ||
      sections.size() != kArrayCount + opened.outline.contributions.size() +
                             2 * opened.outline.feedback.size()) {
    return Damaged("its number of sections does not match its header");
  }
  int64_t left = opened.file_bytes - opened.offset;
  for (const Json& section : sections) {
    int64_t bytes = 0;
    if (!section.is_object() || !Get(section, "bytes", bytes) || bytes < 0 ||
        bytes > left) {
      return Damaged("a section exceeds the file");
    }
    left -= bytes;
  }
  if (left > 0) return Damaged("it is longer than it says");
  return absl::OkStatus();
}

absl::StatusOr<OpenedSave> OpenSave(FileSystem& file_system,
                                    const std::string& path) {
  OpenedSave opened;
  ASSIGN_OR_RETURN(opened.file, file_system.OpenForRead(path));
  ASSIGN_OR_RETURN(opened.file_bytes, opened.file->Size());
  ASSIGN_OR_RETURN(Json json, ReadHeaderJson(*opened.file, opened.offset));
  SaveOutline& outline = opened.outline;
  ASSIGN_OR_RETURN(outline.header, ParseHeader(json));
  ASSIGN_OR_RETURN(outline.contributions,
                   GetMessages<v1::ContributionInfo>(json, "contributions"));
  ASSIGN_OR_RETURN(outline.feedback,
                   GetMessages<v1::ContributionKey>(json, "feedback"));
  for (const v1::ContributionInfo& info : outline.contributions) {
    outline.header.summary.contributions.push_back(
        {info.key().fragment(), info.anchor_version()});
  }
  if (const auto sections = json.find("sections"); sections != json.end()) {
    opened.sections = *sections;
  }
  RETURN_IF_ERROR(CheckSections(opened));
  return opened;
}

}  // namespace

std::string NameOfSave(const SaveOutline& outline) {
  SaveHeader header = outline.header;
  header.held.reset();
  std::string text = SaveHeaderText(header);
  for (const v1::ContributionInfo& info : outline.contributions) {
    text += info.SerializeAsString();
  }
  return codec::ToHex(codec::ComputeSha256(text));
}

std::string SaveHeaderText(const SaveHeader& header) {
  return HeaderJson(header).dump();
}

absl::StatusOr<SaveHeader> ParseSaveHeaderText(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("its header is not JSON");
  return ParseHeader(json);
}

absl::Status WriteSave(FileSystem& file_system, const std::string& path,
                       const SaveHeader& header, const SaveView& view) {
  Json json = HeaderJson(header);
  std::vector<absl::string_view> sections;
  ForEachArray(view.arrays, [&](absl::Span<const float> array) {
    sections.push_back(AsBytes(array));
  });
  json["contributions"] = Json::array();
  for (const EncodedContribution* contribution : view.contributions) {
    json["contributions"].push_back(ToHex(contribution->info));
    sections.push_back(AsBytes(absl::MakeConstSpan(contribution->bytes)));
  }
  json["feedback"] = Json::array();
  for (const FeedbackView& feedback : view.feedback) {
    json["feedback"].push_back(ToHex(feedback.key));
    sections.push_back(AsBytes(feedback.before));
    sections.push_back(AsBytes(feedback.after));
  }
  json["sections"] = Json::array();
  for (const absl::string_view section : sections) {
    json["sections"].push_back(SectionJson(section));
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

absl::StatusOr<SaveOutline> ReadSaveOutline(FileSystem& file_system,
                                            const std::string& path) {
  ASSIGN_OR_RETURN(OpenedSave opened, OpenSave(file_system, path));
  return std::move(opened.outline);
}

absl::StatusOr<Save> ReadSave(FileSystem& file_system,
                              const std::string& path) {
  ASSIGN_OR_RETURN(OpenedSave opened, OpenSave(file_system, path));
  SectionReader reader(*opened.file, opened.offset, opened.sections);
  Save save;
  save.header = std::move(opened.outline.header);
  absl::Status status;
  ForEachArray(save.arrays, [&](std::vector<float>& array) {
    if (status.ok()) status = reader.Next(array);
  });
  RETURN_IF_ERROR(status);
  for (v1::ContributionInfo& info : opened.outline.contributions) {
    EncodedContribution& contribution = save.contributions.emplace_back();
    contribution.info = std::move(info);
    RETURN_IF_ERROR(reader.Next(contribution.bytes));
  }
  for (v1::ContributionKey& key : opened.outline.feedback) {
    SavedFeedback& feedback = save.feedback.emplace_back();
    feedback.key = std::move(key);
    RETURN_IF_ERROR(reader.Next(feedback.before));
    RETURN_IF_ERROR(reader.Next(feedback.after));
  }
  return save;
}

}  // namespace atl::worker
