#include "worker/island/group/part_command.h"

#include <optional>

#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

absl::Status Unreadable() {
  return absl::InternalError(
      "process 0 of the island sent an invalid command: start all processes "
      "with the same program");
}

}  // namespace

wire::Status ToWire(const absl::Status& status) {
  wire::Status message;
  message.set_code(static_cast<int32_t>(status.code()));
  message.set_message(std::string(status.message()));
  // The CLI chooses its advice by the reason (cli/output/error.h).
  if (const std::optional<ErrorReason> reason = GetReason(status)) {
    message.set_reason(reason->reason);
  }
  return message;
}

absl::Status FromWire(const wire::Status& message) {
  const auto code = static_cast<absl::StatusCode>(message.code());
  if (message.reason().empty()) return absl::Status(code, message.message());
  return Refuse(code, message.reason(), message.message());
}

bool NeedsSession(ActionKind kind) {
  return kind == ActionKind::kPush || kind == ActionKind::kPull ||
         kind == ActionKind::kEvaluate;
}

std::string EncodeSetup(const absl::StatusOr<v1::Run>& run) {
  wire::Setup setup;
  *setup.mutable_status() = ToWire(run.status());
  if (run.ok()) *setup.mutable_run() = *run;
  return setup.SerializeAsString();
}

absl::StatusOr<v1::Run> DecodeSetup(absl::string_view message) {
  wire::Setup setup;
  if (!setup.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return Unreadable();
  }
  RETURN_IF_ERROR(FromWire(setup.status()));
  return setup.run();
}

std::string EncodeCommand(const PartCommand& command) {
  const Action& action = command.action;
  wire::Command message;
  message.set_kind(static_cast<int32_t>(action.kind));
  message.set_fragment(action.fragment);
  message.set_version(action.version);
  *message.mutable_digest() = action.digest;
  message.set_from_version(action.from_version);
  message.set_commit_seq(action.commit_seq);
  message.mutable_cut()->Add(action.cut.begin(), action.cut.end());
  message.set_step(action.step);
  message.set_data_shard(action.data_shard);
  message.set_data_position(action.data_position);
  message.set_run_epoch(action.run_epoch);
  message.set_slot(action.slot);
  message.set_seq(action.seq);
  for (const AnchoredFragment& at : action.contributions) {
    wire::Anchored* const anchored = message.add_contributions();
    anchored->set_fragment(at.fragment);
    anchored->set_anchor_version(at.anchor_version);
  }
  message.set_step_count(action.step_count);
  message.set_data_begin(action.data_begin);
  message.set_weight(action.weight);
  message.set_in_background(action.in_background);
  message.set_whole_save(action.whole_save);
  message.set_clock(action.clock);
  message.set_adopt(action.adopt);
  message.set_needs_repush(action.needs_repush);
  message.set_warm_up(action.warm_up);
  if (action.kind == ActionKind::kContribute) {
    message.set_save_header(SaveHeaderText(command.save));
  }
  message.mutable_resolved()->Add(command.resolved.begin(),
                                  command.resolved.end());
  message.set_island_epoch(command.island_epoch);
  message.set_session_secret(command.session_secret);
  if (NeedsSession(action.kind)) {
    message.mutable_routes()->set_placement_epoch(
        command.routes.placement_epoch);
    message.mutable_routes()->mutable_shards()->Add(
        command.routes.shards.begin(), command.routes.shards.end());
  }
  *message.mutable_end() = ToWire(action.status);
  return message.SerializeAsString();
}

absl::StatusOr<PartCommand> DecodeCommand(absl::string_view text) {
  wire::Command message;
  if (!message.ParseFromArray(text.data(), static_cast<int>(text.size())) ||
      message.kind() < 0 ||
      message.kind() > static_cast<int32_t>(ActionKind::kFinish)) {
    return Unreadable();
  }
  PartCommand command;
  Action& action = command.action;
  action.kind = static_cast<ActionKind>(message.kind());
  action.fragment = message.fragment();
  action.version = message.version();
  action.digest = message.digest();
  action.from_version = message.from_version();
  action.commit_seq = message.commit_seq();
  action.cut.assign(message.cut().begin(), message.cut().end());
  action.step = message.step();
  action.data_shard = message.data_shard();
  action.data_position = message.data_position();
  action.run_epoch = message.run_epoch();
  action.slot = message.slot();
  action.seq = message.seq();
  for (const wire::Anchored& at : message.contributions()) {
    action.contributions.push_back({at.fragment(), at.anchor_version()});
  }
  action.step_count = message.step_count();
  action.data_begin = message.data_begin();
  action.weight = message.weight();
  action.in_background = message.in_background();
  action.whole_save = message.whole_save();
  action.clock = message.clock();
  action.adopt = message.adopt();
  action.needs_repush = message.needs_repush();
  action.warm_up = message.warm_up();
  if (action.kind == ActionKind::kContribute) {
    ASSIGN_OR_RETURN(command.save, ParseSaveHeaderText(message.save_header()));
  }
  command.resolved.assign(message.resolved().begin(), message.resolved().end());
  command.island_epoch = message.island_epoch();
  command.session_secret = message.session_secret();
  command.routes = server::ToRoutes(message.routes());
  action.status = FromWire(message.end());
  return command;
}

}  // namespace atl::worker
