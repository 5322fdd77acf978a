#include "worker/save/save_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/codec/sha256.h"
#include "base/io/own_file.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/save/save_header.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

// How a save and a record begin.
struct Kind {
  const char* magic;
  uint32_t format;
  uint32_t other_format;  // It reads that, too.
};
constexpr Kind kWhole = {"ATOLLSAV", kSaveFormat, kSaveFormatWithRecords};
constexpr Kind kWholeWithRecords = {"ATOLLSAV", kSaveFormatWithRecords,
                                    kSaveFormat};
constexpr Kind kRecord = {"ATOLLREC", kRecordFormat, kRecordFormat};

constexpr int64_t kMagicBytes = 8;
constexpr int64_t kPreambleBytes = kMagicBytes + 3 * sizeof(uint32_t);
constexpr uint32_t kHeaderBytesMax = 16 << 20;
constexpr int64_t kVerifyBytes = 1 << 20;  // Read at a time.

template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

// Calls `take(member, part)` for each member of a SaveArrays, in file order.
template <typename Arrays, typename Take>
void ForEachArray(Arrays& arrays, const Take& take) {
  take(arrays.first_moment, kMoments);
  take(arrays.second_moment, kMoments);
  take(arrays.local, kLocal);
  take(arrays.eager_momentum, kEager);
  take(arrays.eager_foreseen, kEager);
}

constexpr size_t kArrayCount = 5;

Json SectionJson(absl::string_view bytes) {
  return {{"bytes", bytes.size()}, {"crc32c", codec::Crc32c(bytes)}};
}

// Whole saves have none.
absl::Status ParseAnswers(const Json& json, SaveOutline& outline) {
  if (const auto answers = json.find("answers"); answers != json.end()) {
    for (const Json& answer : *answers) {
      AppliedAnswer& parsed = outline.answers.emplace_back();
      int64_t adopt = 0;
      if (!answer.is_object() || !Get(answer, "clock", parsed.clock) ||
          !Get(answer, "fragment", parsed.fragment) ||
          !Get(answer, "version", parsed.version) ||
          !Get(answer, "adopt", adopt)) {
        return Damaged("an answer lacks a number");
      }
      parsed.adopt = adopt != 0;
    }
  }
  if (const auto foreseen = json.find("foreseen"); foreseen != json.end()) {
    for (const Json& fragment : *foreseen) {
      if (!fragment.is_number_integer()) return Damaged("foreseen is invalid");
      outline.foreseen.push_back(fragment.get<int32_t>());
    }
  }
  return absl::OkStatus();
}

absl::Status ReadExactly(const RandomAccessFile& file, int64_t offset,
                         absl::Span<char> out) {
  ASSIGN_OR_RETURN(const int64_t got, file.ReadAt(offset, out));
  if (got != static_cast<int64_t>(out.size())) {
    return Damaged("it ends too early");
  }
  return absl::OkStatus();
}

struct Opened {
  std::unique_ptr<RandomAccessFile> file;
  int64_t file_bytes = 0;
  int64_t offset = 0;  // First section's offset.
  int64_t end = 0;     // End of the last section.
  SaveOutline outline;
  Json sections;
};

// Reads sections in order; their lengths were checked.
class SectionReader {
 public:
  SectionReader(const Opened& opened, uint32_t parts)
      : opened_(opened), parts_(parts), offset_(opened.offset) {}

  // The next section, of `part`, as values of T; if `part` is not wanted,
  // `values` stays empty.
  template <typename T>
  absl::Status Next(uint32_t part, std::vector<T>& values) {
    const Json& section = opened_.sections[index_++];
    int64_t bytes = 0;
    uint32_t crc = 0;
    if (!Get(section, "bytes", bytes) || !Get(section, "crc32c", crc) ||
        bytes % static_cast<int64_t>(sizeof(T)) != 0) {
      return Damaged("a section holds a partial element");
    }
    const int64_t begin = offset_;
    offset_ += bytes;
    if ((parts_ & part) == 0) {
      return (parts_ & kVerify) == 0 ? absl::OkStatus()
                                     : Verify(begin, bytes, crc);
    }
    values.resize(bytes / sizeof(T));
    RETURN_IF_ERROR(ReadExactly(
        *opened_.file, begin,
        {reinterpret_cast<char*>(values.data()), static_cast<size_t>(bytes)}));
    return Compare(codec::Crc32c(AsBytes(absl::MakeConstSpan(values))), crc);
  }

 private:
  static absl::Status Compare(uint32_t found, uint32_t crc) {
    if (found == crc) return absl::OkStatus();
    return Damaged("a section's checksum does not match");
  }

  absl::Status Verify(int64_t begin, int64_t bytes, uint32_t crc) {
    buffer_.resize(kVerifyBytes);
    uint32_t found = 0;
    for (int64_t at = 0; at < bytes; at += kVerifyBytes) {
      const absl::Span<char> piece = absl::MakeSpan(buffer_).subspan(
          0, std::min(kVerifyBytes, bytes - at));
      RETURN_IF_ERROR(ReadExactly(*opened_.file, begin + at, piece));
      found = codec::ExtendCrc32c(found, {piece.data(), piece.size()});
    }
    return Compare(found, crc);
  }

  const Opened& opened_;
  const uint32_t parts_;
  int64_t offset_;
  size_t index_ = 0;
  std::vector<char> buffer_;
};

absl::StatusOr<Json> ReadHeaderJson(const RandomAccessFile& file,
                                    const Kind& kind, int64_t& offset) {
  char preamble[kPreambleBytes];
  RETURN_IF_ERROR(ReadExactly(file, offset, absl::MakeSpan(preamble)));
  uint32_t numbers[3];
  std::memcpy(numbers, preamble + kMagicBytes, sizeof(numbers));
  if (std::memcmp(preamble, kind.magic, kMagicBytes) != 0) {
    return Damaged(absl::StrCat("it does not begin with ", kind.magic));
  }
  if (numbers[0] != kind.format && numbers[0] != kind.other_format) {
    return absl::DataLossError(
        absl::StrCat("the local checkpoint has format ", numbers[0],
                     ", but this program reads ", kind.format));
  }
  if (numbers[1] > kHeaderBytesMax) return Damaged("its header is too long");
  std::string text(numbers[1], '\0');
  RETURN_IF_ERROR(
      ReadExactly(file, offset + kPreambleBytes, absl::MakeSpan(text)));
  if (codec::Crc32c(text) != numbers[2]) {
    return Damaged("its header's checksum does not match");
  }
  offset += kPreambleBytes + numbers[1];
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("its header is not JSON");
  return json;
}

// Checks the number and lengths of the sections, and finds their end.
absl::Status MeasureSections(Opened& opened) {
  const Json& sections = opened.sections;
  const SaveOutline& outline = opened.outline;
  if (!sections.is_array() ||
      sections.size() != kArrayCount + outline.contributions.size() +
                             2 * outline.feedback.size() +
                             outline.answers.size() +
                             2 * outline.foreseen.size()) {
    return Damaged("its number of sections does not match its header");
  }
  opened.end = opened.offset;
  for (const Json& section : sections) {
    int64_t bytes = 0;
    if (!section.is_object() || !Get(section, "bytes", bytes) || bytes < 0 ||
        bytes > opened.file_bytes - opened.end) {
      return Damaged("a section exceeds the file");
    }
    opened.end += bytes;
  }
  return absl::OkStatus();
}

// Reads the header of what begins at byte `offset`.
absl::Status OpenAt(const Kind& kind, int64_t offset, Opened& opened) {
  opened.offset = offset;
  ASSIGN_OR_RETURN(Json json,
                   ReadHeaderJson(*opened.file, kind, opened.offset));
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
  if (!outline.contributions.empty()) {
    const v1::ContributionInfo& first = outline.contributions.front();
    outline.header.summary.step_count = first.step_count();
    outline.header.summary.token_count = first.token_count();
  }
  outline.answers.clear();
  outline.foreseen.clear();
  RETURN_IF_ERROR(ParseAnswers(json, outline));
  opened.sections = json.value("sections", Json());
  return MeasureSections(opened);
}

absl::StatusOr<Opened> OpenFile(FileSystem& file_system,
                                const std::string& path) {
  Opened opened;
  ASSIGN_OR_RETURN(opened.file, file_system.OpenForRead(path));
  ASSIGN_OR_RETURN(opened.file_bytes, opened.file->Size());
  return opened;
}

absl::StatusOr<Opened> OpenSave(FileSystem& file_system,
                                const std::string& path) {
  ASSIGN_OR_RETURN(Opened opened, OpenFile(file_system, path));
  RETURN_IF_ERROR(OpenAt(kWhole, 0, opened));
  if (opened.end < opened.file_bytes) {
    return Damaged("it is longer than it says");
  }
  return opened;
}

// Adds the values of each entry of `outline` to `save`, if they are wanted.
absl::Status ReadEntries(const SaveOutline& outline, uint32_t parts,
                         SectionReader& reader, Save& save) {
  for (const v1::ContributionInfo& info : outline.contributions) {
    EncodedContribution contribution = {info, {}};
    RETURN_IF_ERROR(reader.Next(kContributions, contribution.bytes));
    if ((parts & kContributions) != 0) {
      save.contributions.push_back(std::move(contribution));
    }
  }
  for (const v1::ContributionKey& key : outline.feedback) {
    SavedFeedback feedback = {key, {}, {}};
    RETURN_IF_ERROR(reader.Next(kFeedback, feedback.before));
    RETURN_IF_ERROR(reader.Next(kFeedback, feedback.after));
    if ((parts & kFeedback) != 0) save.feedback.push_back(std::move(feedback));
  }
  for (const AppliedAnswer& answer : outline.answers) {
    AnswerValues<std::vector<float>> values = {answer, {}};
    RETURN_IF_ERROR(reader.Next(kAnswers, values.values));
    if ((parts & kAnswers) != 0) save.answers.push_back(std::move(values));
  }
  for (const int32_t fragment : outline.foreseen) {
    ForeseenValues<std::vector<float>> values = {fragment, {}, {}};
    RETURN_IF_ERROR(reader.Next(kAnswers, values.foreseen));
    RETURN_IF_ERROR(reader.Next(kAnswers, values.momentum));
    if ((parts & kAnswers) != 0) save.foreseen.push_back(std::move(values));
  }
  return absl::OkStatus();
}

absl::StatusOr<Save> ReadOpened(const Opened& opened, uint32_t parts) {
  SectionReader reader(opened, parts);
  Save save;
  save.header = opened.outline.header;
  absl::Status status;
  ForEachArray(save.arrays, [&](std::vector<float>& array, uint32_t part) {
    if (status.ok()) status = reader.Next(part, array);
  });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ReadEntries(opened.outline, parts, reader, save));
  return save;
}

// The pieces of a save or record, back to back.
struct Pieces {
  std::vector<absl::string_view> All() const {
    std::vector<absl::string_view> all = {head};
    all.insert(all.end(), sections.begin(), sections.end());
    return all;
  }

  std::string head;
  std::vector<absl::string_view> sections;
};

int64_t CountBytes(const std::vector<absl::string_view>& pieces) {
  int64_t bytes = 0;
  for (const absl::string_view piece : pieces) bytes += piece.size();
  return bytes;
}

Pieces MakePieces(const Kind& kind, const SaveHeader& header,
                  const SaveView& view) {
  Json json = HeaderJson(header);
  Pieces pieces;
  const auto add = [&](auto values) {
    pieces.sections.push_back(AsBytes(absl::MakeConstSpan(values)));
  };
  ForEachArray(view.arrays,
               [&](absl::Span<const float> array, uint32_t) { add(array); });
  json["contributions"] = Json::array();
  for (const EncodedContribution* contribution : view.contributions) {
    json["contributions"].push_back(ToHex(contribution->info));
    add(absl::MakeConstSpan(contribution->bytes));
  }
  json["feedback"] = Json::array();
  for (const FeedbackView& feedback : view.feedback) {
    json["feedback"].push_back(ToHex(feedback.key));
    add(feedback.before);
    add(feedback.after);
  }
  for (const auto& [answer, values] : view.answers) {
    json["answers"].push_back({{"clock", answer.clock},
                               {"fragment", answer.fragment},
                               {"version", answer.version},
                               {"adopt", answer.adopt ? 1 : 0}});
    add(values);
  }
  for (const auto& [fragment, foreseen, momentum] : view.foreseen) {
    json["foreseen"].push_back(fragment);
    add(foreseen);
    add(momentum);
  }
  json["sections"] = Json::array();
  for (const absl::string_view section : pieces.sections) {
    json["sections"].push_back(SectionJson(section));
  }
  const std::string text = json.dump();
  const uint32_t numbers[3] = {kind.format, static_cast<uint32_t>(text.size()),
                               codec::Crc32c(text)};
  pieces.head =
      absl::StrCat(absl::string_view(kind.magic, kMagicBytes),
                   absl::string_view(reinterpret_cast<const char*>(numbers),
                                     sizeof(numbers)),
                   text);
  return pieces;
}

absl::StatusOr<int64_t> WriteNew(FileSystem& file_system,
                                 const std::string& path,
                                 const Pieces& pieces) {
  const std::vector<absl::string_view> all = pieces.All();
  RETURN_IF_ERROR(ReplaceOwnFile(file_system, path, all));
  return CountBytes(all);
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

absl::StatusOr<int64_t> WriteSave(FileSystem& file_system,
                                  const std::string& path,
                                  const SaveHeader& header,
                                  const SaveView& view) {
  const Kind& kind = header.summary.records_follow ? kWholeWithRecords : kWhole;
  return WriteNew(file_system, path, MakePieces(kind, header, view));
}

absl::StatusOr<int64_t> WriteRecord(FileSystem& file_system,
                                    const std::string& path, int64_t offset,
                                    const SaveHeader& header,
                                    const SaveView& view) {
  const Pieces pieces = MakePieces(kRecord, header, view);
  if (offset == 0) return WriteNew(file_system, path, pieces);
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   file_system.OpenForWrite(path));
  const std::vector<absl::string_view> all = pieces.All();
  RETURN_IF_ERROR(file->WriteAt(offset, all));
  RETURN_IF_ERROR(file->Sync());
  return CountBytes(all);
}

absl::StatusOr<SaveOutline> ReadSaveOutline(FileSystem& file_system,
                                            const std::string& path) {
  ASSIGN_OR_RETURN(Opened opened, OpenSave(file_system, path));
  return std::move(opened.outline);
}

absl::StatusOr<Save> ReadSave(FileSystem& file_system, const std::string& path,
                              uint32_t parts) {
  ASSIGN_OR_RETURN(const Opened opened, OpenSave(file_system, path));
  return ReadOpened(opened, parts);
}

std::vector<RecordPlace> FindRecords(FileSystem& file_system,
                                     const std::string& path,
                                     const std::string& base) {
  std::vector<RecordPlace> records;
  absl::StatusOr<Opened> opened = OpenFile(file_system, path);
  if (!opened.ok()) return records;
  int64_t offset = 0;
  while (OpenAt(kRecord, offset, *opened).ok()) {
    const SaveHeader& header = opened->outline.header;
    if (header.base != base ||
        header.record_index != static_cast<int64_t>(records.size())) {
      break;
    }
    records.push_back({offset, opened->outline});
    offset = opened->end;
  }
  return records;
}

absl::StatusOr<Save> ReadRecord(FileSystem& file_system,
                                const std::string& path, int64_t offset,
                                uint32_t parts) {
  ASSIGN_OR_RETURN(Opened opened, OpenFile(file_system, path));
  RETURN_IF_ERROR(OpenAt(kRecord, offset, opened));
  return ReadOpened(opened, parts);
}

}  // namespace atl::worker
