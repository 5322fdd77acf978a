#include "cli/commands/dev_result.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/time/proto_time.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// Calls `visit` with each field of result.json: its name and its value.
template <typename Result, typename Visit>
void ForEachField(Result& result, const Visit& visit) {
  visit("run_id", result.run_id);
  visit("state", result.state);
  visit("rounds", result.rounds);
  visit("inner_steps_per_island", result.inner_steps_per_island);
  visit("islands", result.islands);
  visit("servers", result.servers);
  visit("last_evaluation_loss", result.last_evaluation_loss);
  visit("merged_tokens", result.merged_tokens);
  visit("seconds", result.seconds);
  visit("tokens_per_second", result.tokens_per_second);
  visit("bytes_up", result.bytes_up);
  visit("bytes_down", result.bytes_down);
  visit("checkpoint", result.checkpoint);
  visit("validation_file", result.validation_file);
  visit("parameters_sha256", result.parameters_sha256);
}

// Reads `json` if it has the type of the value.
void Read(const Json& json, std::string& text) {
  if (json.is_string()) text = json.get<std::string>();
}
void Read(const Json& json, double& number) {
  if (json.is_number()) number = json.get<double>();
}
template <typename Integer>
void Read(const Json& json, Integer& count) {
  if (json.is_number_integer()) count = json.get<Integer>();
}

}  // namespace

DevResult Summarize(const v1::GetRunStateResponse& state,
                    const std::vector<v1::Round>& rounds) {
  DevResult result;
  const v1::RunSpec& spec = state.run().spec();
  result.run_id = state.run().run_id();
  result.state = EnumName(state.run().state());
  result.rounds = CompleteRounds(state);
  result.inner_steps_per_island =
      result.rounds * spec.schedule().inner_step_count();
  result.islands = spec.schedule().island_count_min();
  result.servers = spec.server_count();
  result.merged_tokens = state.merged_token_count();
  if (state.has_evaluation()) {
    result.last_evaluation_loss = state.evaluation().loss();
  }
  for (const v1::Round& round : rounds) {
    for (const v1::RoundContribution& contribution : round.contributions()) {
      if (contribution.outcome() == v1::OUTCOME_MERGED) {
        result.bytes_up += contribution.payload_bytes();
      }
    }
  }
  result.bytes_down = state.received_bytes();
  if (!rounds.empty()) {
    result.seconds =
        absl::ToDoubleSeconds(FromProto(rounds.back().commit_time()) -
                              FromProto(rounds.front().open_time()));
  }
  if (result.seconds > 0) {
    result.tokens_per_second =
        static_cast<double>(result.merged_tokens) / result.seconds;
  }
  return result;
}

Json ToData(const DevResult& result) {
  Json data;
  ForEachField(result, [&data](const char* name, const auto& value) {
    data[name] = value;
  });
  return data;
}

std::string ToText(const DevResult& result) {
  Fields fields;
  fields.Add("run", absl::StrCat(result.run_id, " ", result.state));
  fields.Add("rounds", absl::StrCat(result.rounds));
  if (result.last_evaluation_loss > 0) {
    fields.Add("validation loss", FormatLoss(result.last_evaluation_loss));
  }
  fields.Add("tokens/s",
             FormatCount(static_cast<int64_t>(result.tokens_per_second)));
  fields.Add("seconds", absl::StrFormat("%.1f", result.seconds));
  fields.Add("bytes up", FormatBytes(result.bytes_up));
  fields.Add("bytes down", FormatBytes(result.bytes_down));
  if (!result.checkpoint.empty()) {
    fields.Add("model", result.checkpoint);
    fields.Add("sha256", result.parameters_sha256);
  }
  if (!result.validation_file.empty()) {
    fields.Add("held-out text", result.validation_file);
  }
  return fields.ToString();
}

absl::Status WriteJson(const std::string& path, const Json& json) {
  return ReplaceFile(
      PosixFileSystem(), path,
      json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

absl::Status CheckReplaceable(const std::string& path, const Json& json) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found) return absl::OkStatus();
  if (type == std::filesystem::file_type::regular) {
    std::ifstream file(path, std::ios::binary);
    const Json before = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (before.is_object() && before.size() == json.size() &&
        absl::c_all_of(json.items(), [&](const auto& item) {
          return before.contains(item.key());
        })) {
      return absl::OkStatus();
    }
  }
  return WithHint(WithReason(absl::AlreadyExistsError(absl::StrCat(
                                 path, " exists and is no such summary")),
                             "NOT_OURS"),
                  "Give another file, or move this one away.");
}

absl::StatusOr<DevResult> ReadDevResult(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("there is no ", path));
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("run_id")) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a result of `atoll dev up`"));
  }
  DevResult result;
  ForEachField(result, [&json](const char* name, auto& value) {
    if (json.contains(name)) Read(json[name], value);
  });
  return result;
}

}  // namespace atl::cli
