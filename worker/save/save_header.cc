#include "worker/save/save_header.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

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
    // Files of older programs have none.
    Get(track, "token_count", saved.token_count);
    Get(track, "pushed_step_count", saved.pushed_step_count);
    Get(track, "pushed_token_count", saved.pushed_token_count);
  }
  return absl::OkStatus();
}

// Files of older programs have none of them.
absl::Status ParseOrigin(const Json& json, SaveHeader& header) {
  Get(json, "island_epoch", header.summary.island_epoch);
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

// Files of older programs have none.
absl::Status ParseLosses(const Json& json, SaveHeader& header) {
  const auto losses = json.find("losses");
  if (losses == json.end()) return absl::OkStatus();
  if (!losses->is_array()) return Damaged("losses is not a list");
  for (const Json& loss : *losses) {
    if (!loss.is_array() || loss.size() != 2 || !loss[0].is_number() ||
        !loss[1].is_number_integer()) {
      return Damaged("losses is not a list of sums");
    }
    header.losses.push_back({loss[0].get<double>(), loss[1].get<int64_t>()});
  }
  return absl::OkStatus();
}

absl::Status ParsePlace(const Json& json, SaveHeader& header) {
  if (const auto name = json.find("name"); name != json.end()) {
    if (!name->is_string()) return Damaged("its name is not text");
    header.name = name->get<std::string>();
  }
  header.summary.records_follow = json.contains("records_follow");
  if (json.contains("unpushed")) {
    ASSIGN_OR_RETURN(header.summary.unpushed,
                     GetMessages<v1::UnpushedWork>(json, "unpushed"));
  }
  const auto base = json.find("base");
  if (base == json.end()) return absl::OkStatus();
  if (!base->is_string() || !Get(json, "record_index", header.record_index)) {
    return Damaged("a record does not say what it follows");
  }
  header.base = base->get<std::string>();
  return absl::OkStatus();
}

}  // namespace

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the local checkpoint is damaged: ", what));
}

std::string ToHex(const google::protobuf::MessageLite& message) {
  return absl::BytesToHexString(message.SerializeAsString());
}

Json HeaderJson(const SaveHeader& header) {
  const SaveSummary& summary = header.summary;
  Json json = {
      {"run_id", summary.run_id},
      {"run_epoch", summary.run_epoch},
      {"island_epoch", summary.island_epoch},
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
                              {"token_count", track.token_count},
                              {"seq", track.seq},
                              {"push_step", track.push_step},
                              {"pushed_step_count", track.pushed_step_count},
                              {"pushed_token_count",
                               track.pushed_token_count}});
  }
  if (!header.run_uid.empty()) json["run_uid"] = header.run_uid;
  if (!header.token_counts.empty()) {
    json["trainer_save_id"] = header.trainer_save_id;
    json["token_counts"] = header.token_counts;
  }
  if (!header.losses.empty()) {
    json["losses"] = Json::array();
    for (const LossSum& loss : header.losses) {
      json["losses"].push_back({loss.sum, loss.step_count});
    }
  }
  if (!header.log.cluster_id().empty()) json["log"] = ToHex(header.log);
  if (summary.records_follow) json["records_follow"] = 1;
  for (const v1::UnpushedWork& work : summary.unpushed) {
    json["unpushed"].push_back(ToHex(work));
  }
  if (!header.name.empty()) json["name"] = header.name;
  if (!header.base.empty()) {
    json["base"] = header.base;
    json["record_index"] = header.record_index;
  }
  // Omitted if all is held, which keeps such files unchanged.
  if (header.held.has_value()) {
    json["held"] = Json::array();
    for (const IndexRange range : *header.held) {
      json["held"].push_back({range.begin, range.end});
    }
  }
  return json;
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
  RETURN_IF_ERROR(ParseLosses(json, header));
  RETURN_IF_ERROR(ParsePlace(json, header));
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

std::string SaveHeaderText(const SaveHeader& header) {
  return HeaderJson(header).dump();
}

absl::StatusOr<SaveHeader> ParseSaveHeaderText(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("its header is not JSON");
  return ParseHeader(json);
}

}  // namespace atl::worker
