#include "cli/commands/run/adopt_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/run_owner.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/run/restore_run.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

using mirror::CheckpointPlace;
using mirror::MirroredCheckpoint;
using storage::v1::MirrorManifest;

constexpr size_t kNamedMax = 8;
// Looks at a mirror that changes.
constexpr int kLooksMax = 9;
// AdoptRunRequest.manifest.
constexpr size_t kManifestBytesMax = 3 << 20;

bool IsNamed(const MirrorManifest& manifest, const std::string& from) {
  const v1::Pin& pin = manifest.pin();
  return from == pin.pin_id() ||
         from == absl::StrCat("commit:", pin.commit_seq() - 1) ||
         from == FormatPlace(mirror::GetPlace(manifest));
}

// "round-40: the state after commit 40, of 2026-11-28T04:05:06Z".
std::string DescribeCut(const MirrorManifest& manifest) {
  const v1::Pin& pin = manifest.pin();
  return absl::StrCat(
      pin.pin_id(), ": the state after commit ", pin.commit_seq() - 1, ", of ",
      FormatTimestamp(FromProto(manifest.create_time())),
      pin.suspect() ? "; SUSPECT: it holds commits outside the run's band"
                    : "");
}

std::string DescribeServers(const AdoptedRun& adopted) {
  const int before = adopted.manifest.spec().server_count();
  return absl::StrCat(adopted.server_count,
                      before == adopted.server_count
                          ? std::string()
                          : absl::StrCat("; the checkpoint is of ", before));
}

constexpr char kMirrorText[] =
    "this cluster becomes the owner of the run's checkpoints there: a cluster "
    "that still has the run copies and removes none any longer";
constexpr char kIslandsText[] =
    "they join again, with join strings or certificates of this cluster, and "
    "new directories";

// The run of the cluster with this id; nullopt: it has none.
absl::StatusOr<std::optional<v1::Run>> FindInCluster(
    coordinator::Client& client, const std::string& run_id) {
  const absl::StatusOr<v1::GetRunStateResponse> state =
      client.GetRunState(run_id);
  if (HasReason(state.status(), "NO_SUCH_RUN")) return std::nullopt;
  RETURN_IF_ERROR(state.status());
  return state->run();
}

// As FindToAdopt, in one look. A checkpoint that its run removes meanwhile is
// passed over; `passed_over` is set then.
absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> LookOnce(
    ObjectStore& store, const AdoptOptions& options, bool& passed_over) {
  MirrorChoice choice;
  choice.run = options.run_uid.empty() ? options.run_id : options.run_uid;
  absl::StatusOr<std::vector<CheckpointPlace>> places =
      FindPlaces(store, choice);
  if (GetReason(places.status()) == "USAGE" && options.run_uid.empty()) {
    return UsageError(places.status().message(),
                      "Name one with --run-uid: its run_uid, in parentheses, "
                      "is unique.");
  }
  RETURN_IF_ERROR(places.status());
  std::reverse(places->begin(), places->end());
  std::vector<std::string> others;
  bool has_suspect = false;
  for (const CheckpointPlace& place : *places) {
    ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> found,
                     ReadFound(store, place));
    if (!found.has_value()) {
      passed_over = true;
      continue;
    }
    const bool is_named = options.from == FormatPlace(place);
    if (found->checkpoint == nullptr) {
      // The user has not chosen an older one in its place.
      if (!options.from.empty() && !is_named) continue;
      return WithHint(found->problem,
                      absl::StrCat("Name another checkpoint with --from; "
                                   "`atoll checkpoint verify ",
                                   options.url,
                                   "` says which ones are whole."));
    }
    const MirrorManifest& manifest = found->checkpoint->manifest();
    if (manifest.run_id() != options.run_id) {
      return UsageError(absl::StrCat("the run with run_uid ", place.run_uid,
                                     " has the id ", manifest.run_id(),
                                     ", not ", options.run_id));
    }
    if (options.from.empty() ? !manifest.pin().suspect()
                             : IsNamed(manifest, options.from)) {
      return std::move(found->checkpoint);
    }
    has_suspect |= manifest.pin().suspect();
    if (others.size() < kNamedMax) {
      others.push_back(absl::StrCat(manifest.pin().pin_id(), " (commit:",
                                    manifest.pin().commit_seq() - 1, ")"));
    }
  }
  return WithHint(
      WithReason(absl::NotFoundError(absl::StrCat(
                     store.GetUrl(""), " has no checkpoint ", options.from,
                     options.from.empty() ? "that is not suspect" : "",
                     " of run ", options.run_id,
                     others.empty() ? "" : "; it has ",
                     absl::StrJoin(others, ", "))),
                 "NO_CHECKPOINT"),
      has_suspect && options.from.empty()
          ? "Name a suspect one with --from."
          : absl::StrCat("`atoll checkpoint list ", options.url,
                         "` shows what the mirror has."));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> FindToAdopt(
    ObjectStore& store, const AdoptOptions& options) {
  std::vector<CheckpointPlace> seen;
  absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> found;
  for (int look = 0; look < kLooksMax; ++look) {
    bool passed_over = false;
    found = LookOnce(store, options, passed_over);
    if (found.ok() &&
        options.from == FormatPlace(mirror::GetPlace((*found)->manifest()))) {
      return found;  // There is one of this name.
    }
    if (!passed_over && !HasReason(found.status(), "NO_CHECKPOINT")) {
      return found;
    }
    // A live run may have replaced all checkpoints, or moved the one that was
    // passed over: an older one is then the wrong answer.
    auto places = mirror::ListCheckpoints(store);
    if (!places.ok() && found.ok()) return places.status();
    if (!places.ok() || *places == seen) return found;
    seen = *std::move(places);
  }
  if (!found.ok()) return found;
  return WithHint(absl::AbortedError(absl::StrCat(
                      store.GetUrl(""), " kept changing: looked ", kLooksMax,
                      " times")),
                  "Its run may still be writing to it. Try again.");
}

absl::StatusOr<AdoptedRun> AdoptRun(Context& context,
                                    const AdoptOptions& options,
                                    Progress& progress,
                                    const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const absl::Duration patience,
                   ParsePatience(options.patience));
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenMirror(context, options.url, stop));
  AdoptedRun adopted;
  std::optional<storage::v1::RunOwner> owner;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<MirroredCheckpoint> found,
                     FindToAdopt(*store, options));
    adopted.manifest = found->manifest();
    adopted.manifest.clear_parts();
    ASSIGN_OR_RETURN(owner,
                     mirror::ReadOwner(*store, adopted.manifest.run_uid()));
  }
  const MirrorManifest& manifest = adopted.manifest;
  adopted.server_count = options.server_count > 0
                             ? options.server_count
                             : manifest.spec().server_count();
  const std::string cut =
      absl::StrCat("commit:", manifest.pin().commit_seq() - 1);
  if (options.dry_run) {
    adopted.is_dry = true;
    adopted.next_command = absl::StrCat(
        "atoll run restore ", options.url, " --run-id ", options.run_id,
        options.run_uid.empty() ? "" : " --run-uid ", options.run_uid,
        " --from ", options.from.empty() ? cut : options.from,
        options.server_count > 0
            ? absl::StrCat(" --server-count ", options.server_count)
            : "");
    return adopted;
  }
  v1::AdoptRunRequest request;
  request.set_manifest(mirror::ManifestToJson(manifest));
  request.set_server_count(options.server_count);
  if (owner.has_value()) {
    request.set_reached_run_epoch(owner->run_epoch());
    request.set_reached_commit_seq(owner->restore_commit_seq());
  }
  if (request.manifest().size() > kManifestBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint's manifest has ", FormatBytes(
            static_cast<int64_t>(request.manifest().size())),
        " without its parts, more than the 3 MiB that a coordinator takes"));
  }
  ASSIGN_OR_RETURN(auto client, context.MakeClient({stop, &progress}));
  ASSIGN_OR_RETURN(const std::optional<v1::Run> present,
                   FindInCluster(*client, options.run_id));
  // Asks no second time after an interruption. The coordinator refuses another
  // run.
  if (!present.has_value()) {
    context.output().Message(absl::StrCat("run ", options.run_id,
                                          " continues from ",
                                          DescribeCut(manifest)));
    context.output().Message(absl::StrCat("trained on: ",
                                          DescribeTokens(manifest)));
    context.output().Message(
        absl::StrCat("servers: ", DescribeServers(adopted)));
    context.output().Message(
        "loses what was committed after that checkpoint");
    context.output().Message(absl::StrCat("mirror: ", kMirrorText));
    context.output().Message(absl::StrCat("islands: ", kIslandsText));
    RETURN_IF_ERROR(
        ConfirmRestore(context, options.run_id, options.yes, stop));
  }
  ASSIGN_OR_RETURN(
      const v1::AdoptRunResponse answer,
      client->Call(&v1::RunService::Stub::AdoptRun, request));
  adopted.changed = answer.changed();
  const absl::StatusOr<v1::GetRunStateResponse> after =
      WaitForShards(*client, answer.run(), patience, progress, stop);
  progress.Clear();
  RETURN_IF_ERROR(after.status());
  adopted.run = after->run();
  adopted.next_command = NextCommand(adopted.run);
  return adopted;
}

Json ToJson(const AdoptedRun& adopted) {
  const MirrorManifest& manifest = adopted.manifest;
  const v1::Run& run = adopted.run;
  Json data;
  data["run_id"] = manifest.run_id();
  data["run_uid"] = manifest.run_uid();
  data["state"] = adopted.is_dry ? "" : EnumName(run.state());
  data["run_epoch"] = absl::StrCat(run.run_epoch());
  data["pin_id"] = manifest.pin().pin_id();
  data["cut_commit_seq"] = absl::StrCat(manifest.pin().commit_seq());
  data["suspect"] = manifest.pin().suspect();
  // Not known: a mirror does not tell what was committed since.
  data["lost_commit_count"] = nullptr;
  data["lost_token_count"] = nullptr;
  data["changed"] = adopted.changed;
  data["next_command"] = adopted.next_command;
  data["server_count"] = adopted.server_count;
  data["token_count"] = absl::StrCat(TokenCount(manifest));
  data["create_time"] = FormatTimestamp(FromProto(manifest.create_time()));
  return data;
}

std::string ToText(const AdoptedRun& adopted) {
  const MirrorManifest& manifest = adopted.manifest;
  Fields fields;
  fields.Add("run", manifest.run_id());
  fields.Add("run_uid", manifest.run_uid());
  if (!adopted.is_dry) {
    fields.Add("state", EnumName(adopted.run.state()));
    if (!adopted.run.state_reason().empty()) {
      fields.AddText("why", adopted.run.state_reason());
    }
  }
  fields.AddText("cut", DescribeCut(manifest));
  fields.AddText("trained on", DescribeTokens(manifest));
  fields.Add("servers", DescribeServers(adopted));
  fields.AddText(adopted.is_dry ? "would be lost" : "lost",
                 "what was committed after that checkpoint");
  if (!adopted.is_dry) {
    fields.Add("epoch", absl::StrCat(adopted.run.run_epoch()));
  }
  fields.AddText("mirror", kMirrorText);
  fields.AddText("islands", kIslandsText);
  fields.Add("next command", adopted.next_command);
  return fields.ToString();
}

}  // namespace atl::cli
