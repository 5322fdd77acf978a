// Where a command's results go: data on one stream, everything else on the
// other.
//
// Thread-compatible.
//
// In the formats json and jsonl all data has one envelope:
//
//   {"schema_version": 1, "status": "ok", "exit_code": 0, "data": {...}}
//   {"schema_version": 1, "status": "error", "exit_code": 8,
//    "error": {"code": "NOT_FOUND", "reason": "...", "message": "...",
//              "hint": "..."}}
//
// json prints one envelope for a command, indented; jsonl one for each item of
// a list or event of a watch, a line each. 64-bit numbers of the protocol are
// strings in it, times are RFC 3339 in UTC, both as proto3's JSON mapping has
// them.

#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/output/exit_code.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace atl::cli {

using Json = nlohmann::ordered_json;

// Grows when a reader of the envelope could break.
inline constexpr int kSchemaVersion = 1;

enum class OutputFormat { kTable, kJson, kJsonl };

// "table", "json" or "jsonl".
//
// INVALID_ARGUMENT (a usage error): another word.
absl::StatusOr<OutputFormat> ParseOutputFormat(absl::string_view text);

// `message` by proto3's JSON mapping with the names of the .proto file and
// with fields that hold their default.
Json ToJson(const google::protobuf::Message& message);

class Output {
 public:
  // Both streams outlive this.
  Output(OutputFormat format, std::ostream& data, std::ostream& messages)
      : format_(format), data_(data), messages_(messages) {}

  OutputFormat format() const { return format_; }
  void set_format(OutputFormat format) { format_ = format; }

  // Prints the whole result of a command: `text` for people, `data` else.
  void Print(const Json& data, absl::string_view text);

  // Prints a list: `text` for people; json: {"`name`": [items]}; jsonl: each
  // item by itself.
  void PrintList(absl::string_view name, const Json& items,
                 absl::string_view text);

  // Prints one event of a stream: a line of text, or a jsonl envelope. In the
  // format json events are kept and FinishStream prints them as a list.
  void PrintEvent(const Json& event, absl::string_view line);
  void FinishStream(absl::string_view name);

  // A line for people on the other stream.
  void Message(absl::string_view line);

  // Prints the error, if it is one, and returns the exit code. In the formats
  // json and jsonl its envelope is data; a line is on the other stream anyway.
  ExitCode Finish(const absl::Status& status);

 private:
  void PrintEnvelope(const Json& envelope);

  OutputFormat format_;
  std::ostream& data_;
  std::ostream& messages_;
  Json events_ = Json::array();
};

}  // namespace atl::cli
