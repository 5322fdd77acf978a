// A command's results: data on one stream, everything else on the other.
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
// A check that fails has both "data" and "error".
//
// json prints one indented envelope per command; jsonl one line per item of a
// list or event of a watch. As in proto3's JSON mapping, 64-bit numbers of the
// protocol are strings, and times are RFC 3339 in UTC.

#pragma once

#include <cstddef>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/output/error.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace atl::cli {

using Json = nlohmann::ordered_json;

// Raised by a change that could break a reader of the envelope.
inline constexpr int kSchemaVersion = 1;

enum class OutputFormat { kTable, kJson, kJsonl };

// "table", "json" or "jsonl".
//
// INVALID_ARGUMENT (a usage error): another word.
absl::StatusOr<OutputFormat> ParseOutputFormat(absl::string_view text);

// `message` in proto3's JSON mapping, with the field names of the .proto file
// and with fields that hold their default.
Json ToJson(const google::protobuf::Message& message);

class Output {
 public:
  // Both streams outlive this.
  Output(OutputFormat format, std::ostream& data, std::ostream& messages)
      : format_(format), data_(data), messages_(messages) {}

  OutputFormat format() const { return format_; }
  void set_format(OutputFormat format) { format_ = format; }
  // Wraps errors on the message stream, a terminal of so many columns. 0, the
  // default: their lines stay whole.
  void set_columns(size_t columns) { columns_ = columns; }

  // Prints the whole result of a command: `text` as a table, `data` as JSON.
  void Print(const Json& data, absl::string_view text);

  // The same for a result that is an error too: its envelope has both. The
  // action then returns `error`, which Finish prints only as a message.
  void PrintFailed(const Json& data, absl::string_view text,
                   const absl::Status& error);

  // Prints a list. table: `text`; json: {"`name`": [items]}; jsonl: an envelope
  // per item.
  void PrintList(absl::string_view name, const Json& items,
                 absl::string_view text);

  // Prints one event of a stream: a line of text, or a jsonl envelope. With
  // json FinishStream prints all events as a list.
  void PrintEvent(const Json& event, absl::string_view line);
  void FinishStream(absl::string_view name);

  // Whole lines, which may hold the text of a peer.
  void Message(absl::string_view text);

  // UNKNOWN (reason CANNOT_WRITE_OUTPUT): some data could not be written.
  const absl::Status& data_status() const { return data_status_; }

  // Prints an error and returns the exit code. The message stream always gets
  // the message; json and jsonl also print an envelope as data. An OK status
  // becomes data_status().
  ExitCode Finish(const absl::Status& result);

 private:
  void PrintData(absl::string_view text);
  void PrintEnvelope(const Json& envelope);
  // Prints `prefix` and `text`, which may have several lines.
  void PrintMessage(absl::string_view prefix, absl::string_view text,
                    size_t indent);

  OutputFormat format_;
  size_t columns_ = 0;
  std::ostream& data_;
  std::ostream& messages_;
  absl::Status data_status_;
  Json events_ = Json::array();
  bool has_error_envelope_ = false;  // PrintFailed has printed it.
};

}  // namespace atl::cli
