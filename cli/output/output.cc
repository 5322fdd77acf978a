#include "cli/output/output.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/output/table.h"
#include "google/protobuf/util/json_util.h"

namespace atl::cli {
namespace {

// ASCII alone, because a terminal obeys some characters of a peer's text.
// Invalid UTF-8 becomes U+FFFD, because dump must not throw.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace);
}

Json OkEnvelope(const Json& data) {
  Json envelope;
  envelope["schema_version"] = kSchemaVersion;
  envelope["status"] = "ok";
  envelope["exit_code"] = 0;
  envelope["data"] = data;
  return envelope;
}

Json ErrorEnvelope(const absl::Status& status) {
  Json envelope;
  envelope["schema_version"] = kSchemaVersion;
  envelope["status"] = "error";
  envelope["exit_code"] = static_cast<int>(ToExitCode(status));
  envelope["error"]["code"] = absl::StatusCodeToString(status.code());
  envelope["error"]["reason"] = GetReason(status);
  envelope["error"]["message"] = std::string(status.message());
  envelope["error"]["hint"] = GetHint(status);
  return envelope;
}

}  // namespace

absl::StatusOr<OutputFormat> ParseOutputFormat(absl::string_view text) {
  if (text == "table") return OutputFormat::kTable;
  if (text == "json") return OutputFormat::kJson;
  if (text == "jsonl") return OutputFormat::kJsonl;
  return UsageError(absl::StrCat("unknown output format '", text, "'"),
                    "The formats are table, json and jsonl.");
}

Json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options)
           .ok()) {
    return Json::object();
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json::object() : json;
}

void Output::PrintData(absl::string_view text) {
  errno = 0;
  data_ << text << std::flush;
  if (data_.good() || !data_status_.ok()) return;
  data_status_ = WithReason(
      absl::UnknownError(absl::StrCat(
          "the output could not be written",
          errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno)))),
      "CANNOT_WRITE_OUTPUT");
}

void Output::PrintEnvelope(const Json& envelope) {
  PrintData(absl::StrCat(
      Dump(envelope, format_ == OutputFormat::kJson ? 2 : -1), "\n"));
}

void Output::Print(const Json& data, absl::string_view text) {
  if (format_ == OutputFormat::kTable) {
    PrintData(text);
  } else {
    PrintEnvelope(OkEnvelope(data));
  }
}

void Output::PrintFailed(const Json& data, absl::string_view text,
                         const absl::Status& error) {
  if (format_ == OutputFormat::kTable) {
    PrintData(text);
    return;
  }
  Json envelope = ErrorEnvelope(error);
  envelope["data"] = data;
  PrintEnvelope(envelope);
  has_error_envelope_ = true;
}

void Output::PrintList(absl::string_view name, const Json& items,
                       absl::string_view text) {
  if (format_ == OutputFormat::kJsonl) {
    for (const Json& item : items) PrintEnvelope(OkEnvelope(item));
    return;
  }
  Json data;
  data[std::string(name)] = items;
  Print(data, text);
}

void Output::PrintEvent(const Json& event, absl::string_view line) {
  switch (format_) {
    case OutputFormat::kTable:
      PrintData(absl::StrCat(line, "\n"));
      break;
    case OutputFormat::kJsonl:
      PrintEnvelope(OkEnvelope(event));
      break;
    case OutputFormat::kJson:
      events_.push_back(event);
      break;
  }
}

void Output::FinishStream(absl::string_view name) {
  if (format_ != OutputFormat::kJson) return;
  Json data;
  data[std::string(name)] = std::move(events_);
  events_ = Json::array();
  PrintEnvelope(OkEnvelope(data));
}

void Output::Message(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    messages_ << Printable(line) << "\n";
  }
  messages_ << std::flush;
}

void Output::PrintMessage(absl::string_view prefix, absl::string_view text,
                          size_t indent) {
  std::string message(prefix);
  size_t begin = prefix.size();
  for (const absl::string_view given : absl::StrSplit(text, '\n')) {
    const std::string line = Printable(given);
    absl::StrAppend(&message,
                    columns_ == 0 ? line : Wrap(line, begin, indent, columns_),
                    "\n");
    begin = 0;
  }
  messages_ << message << std::flush;
}

ExitCode Output::Finish(const absl::Status& result) {
  const absl::Status& status = result.ok() ? data_status_ : result;
  const ExitCode code = ToExitCode(status);
  if (status.ok()) return code;
  const std::string hint = GetHint(status);
  PrintMessage("atoll: ", status.message(), /*indent=*/2);
  if (!hint.empty()) PrintMessage("  hint: ", hint, /*indent=*/8);
  if (format_ != OutputFormat::kTable && !has_error_envelope_) {
    PrintEnvelope(ErrorEnvelope(status));
  }
  return code;
}

}  // namespace atl::cli
