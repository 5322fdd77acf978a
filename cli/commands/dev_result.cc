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
  data["run_id"] = result.run_id;
  data["state"] = result.state;
  data["rounds"] = result.rounds;
  data["inner_steps_per_island"] = result.inner_steps_per_island;
  data["islands"] = result.islands;
  data["servers"] = result.servers;
  data["last_evaluation_loss"] = result.last_evaluation_loss;
  data["merged_tokens"] = result.merged_tokens;
  data["seconds"] = result.seconds;
  data["tokens_per_second"] = result.tokens_per_second;
  data["bytes_up"] = result.bytes_up;
  data["bytes_down"] = result.bytes_down;
  data["checkpoint"] = result.checkpoint;
  data["validation_file"] = result.validation_file;
  data["parameters_sha256"] = result.parameters_sha256;
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
  const auto text_of = [&](const char* name) {
    return json.contains(name) && json[name].is_string()
               ? json[name].get<std::string>()
               : std::string();
  };
  const auto number_of = [&](const char* name) {
    return json.contains(name) && json[name].is_number()
               ? json[name].get<double>()
               : 0.0;
  };
  const auto count_of = [&](const char* name) {
    return json.contains(name) && json[name].is_number_integer()
               ? json[name].get<int64_t>()
               : 0;
  };
  DevResult result;
  result.run_id = text_of("run_id");
  result.state = text_of("state");
  result.rounds = count_of("rounds");
  result.inner_steps_per_island = count_of("inner_steps_per_island");
  result.islands = static_cast<int>(count_of("islands"));
  result.servers = static_cast<int>(count_of("servers"));
  result.last_evaluation_loss = number_of("last_evaluation_loss");
  result.merged_tokens = count_of("merged_tokens");
  result.seconds = number_of("seconds");
  result.tokens_per_second = number_of("tokens_per_second");
  result.bytes_up = count_of("bytes_up");
  result.bytes_down = count_of("bytes_down");
  result.checkpoint = text_of("checkpoint");
  result.validation_file = text_of("validation_file");
  result.parameters_sha256 = text_of("parameters_sha256");
  return result;
}

}  // namespace atl::cli
