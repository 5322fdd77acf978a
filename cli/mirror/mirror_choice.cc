#include "cli/mirror/mirror_choice.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/layout/weight_unit.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/doctor/machine_facts.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

using mirror::CheckpointPlace;
using mirror::MirroredCheckpoint;

constexpr size_t kNamesMax = 8;

// "a, b and 3 more".
std::string JoinSome(const std::vector<std::string>& names) {
  if (names.size() <= kNamesMax) return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kNamesMax, ", "), " and ",
      names.size() - kNamesMax, " more");
}

absl::Status NoCheckpoint(absl::string_view message) {
  return WithHint(WithReason(absl::NotFoundError(message), "NO_CHECKPOINT"),
                  "`atoll checkpoint list URL` shows what a mirror has.");
}

std::vector<std::string> UidsOf(const std::vector<CheckpointPlace>& places) {
  std::set<std::string> uids;
  for (const CheckpointPlace& place : places) uids.insert(place.run_uid);
  return {uids.begin(), uids.end()};
}

std::vector<CheckpointPlace> OfUid(const std::vector<CheckpointPlace>& places,
                                   const std::string& uid) {
  std::vector<CheckpointPlace> of;
  absl::c_copy_if(
      places, std::back_inserter(of),
      [&](const CheckpointPlace& place) { return place.run_uid == uid; });
  return of;
}

// The run_id in the newest manifest of `uid` that can be read; empty: in none.
absl::StatusOr<std::string> ReadRunId(
    ObjectStore& store, const std::vector<CheckpointPlace>& places,
    const std::string& uid) {
  std::vector<CheckpointPlace> newest_first = OfUid(places, uid);
  std::reverse(newest_first.begin(), newest_first.end());
  for (const CheckpointPlace& place : newest_first) {
    ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found,
                     ReadFound(store, place));
    if (found.has_value() && found->checkpoint != nullptr) {
      return found->checkpoint->manifest().run_id();
    }
  }
  return std::string();
}

// "spring (0123…)" for each run.
absl::StatusOr<std::string> NameRuns(ObjectStore& store,
                                     const std::vector<CheckpointPlace>& places,
                                     const std::vector<std::string>& uids) {
  std::vector<std::string> names;
  for (const std::string& uid : uids) {
    // JoinSome does not name these.
    if (names.size() > kNamesMax) {
      names.push_back(uid);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string run_id, ReadRunId(store, places, uid));
    names.push_back(run_id.empty() ? uid
                                   : absl::StrCat(run_id, " (", uid, ")"));
  }
  return JoinSome(names);
}

absl::Status SeveralRuns(absl::string_view what, const std::string& names) {
  return UsageError(absl::StrCat(what, ": ", names),
                    "Name one with --run: its run_uid, in parentheses, is "
                    "unique.");
}

// The run_uid of --run.
absl::StatusOr<std::string> FindRun(ObjectStore& store,
                                    const std::vector<CheckpointPlace>& places,
                                    const std::string& run) {
  const std::vector<std::string> uids = UidsOf(places);
  if (absl::c_linear_search(uids, run)) return run;
  std::vector<std::string> matching;
  for (const std::string& uid : uids) {
    ASSIGN_OR_RETURN(const std::string run_id, ReadRunId(store, places, uid));
    if (run_id == run) matching.push_back(uid);
  }
  if (matching.size() == 1) return matching[0];
  ASSIGN_OR_RETURN(const std::string names,
                   NameRuns(store, places, matching.empty() ? uids : matching));
  if (!matching.empty()) {
    return SeveralRuns(absl::StrCat(store.GetUrl(""), " has ", matching.size(),
                                    " runs with the id ", run),
                       names);
  }
  return NoCheckpoint(absl::StrCat(store.GetUrl(""),
                                   " has no checkpoint of run ", run,
                                   "; it has those of ", names));
}

absl::StatusOr<std::pair<int64_t, int64_t>> ParseCheckpoint(
    const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  std::pair<int64_t, int64_t> at;
  if (!absl::SimpleAtoi(words.first, &at.first) ||
      !absl::SimpleAtoi(words.second, &at.second)) {
    return UsageError(absl::StrCat("--checkpoint: '", text,
                                   "' is not of the form EPOCH/COMMIT"),
                      "`atoll checkpoint list URL` shows them.");
  }
  return at;
}

}  // namespace

void AddMirrorUrl(flags::Command& command, MirrorChoice& choice) {
  command
      .Add("url", choice.url,
           "The mirror: the value of --mirror of the coordinator, "
           "s3://BUCKET/PREFIX or file:///DIR")
      .Required();
}

void AddMirrorRun(flags::Command& command, MirrorChoice& choice) {
  command.Add("--run", choice.run, "Id, or run_uid, of a run in the mirror");
}

void AddMirrorCheckpoint(flags::Command& command, MirrorChoice& choice,
                         const std::string& help) {
  command.Add("--checkpoint", choice.checkpoint, help);
}

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenMirror(const Context& context,
                                                        const std::string& url,
                                                        std::stop_token stop) {
  if (!absl::StrContains(url, "://")) {
    return UsageError(
        absl::StrCat("'", url, "' is not the URL of a mirror"),
        absl::StrCat("Give s3://BUCKET/PREFIX or file:///DIR, the value of "
                     "--mirror of the coordinator. `atoll run show ",
                     url.empty() ? "RUN" : url,
                     "` shows a run of the cluster."));
  }
  return MakeStoreOpener(context.environment,
                         {.proxy = context.settings.proxy()})(
      url, [stop] { return stop.stop_requested(); });
}

std::string FormatPlace(const CheckpointPlace& place) {
  return absl::StrCat(place.run_epoch, "/", place.commit_seq);
}

int64_t TokenCount(const storage::v1::MirrorManifest& manifest) {
  return manifest.point().fragment_token_count() /
         std::max(1, manifest.pin().cut_size());
}

std::string DescribeTokens(const storage::v1::MirrorManifest& manifest) {
  return absl::StrCat(FormatCount(TokenCount(manifest)), " ",
                      WeightUnitName(manifest.spec().weight_unit()));
}

bool IsDamage(const absl::Status& status) {
  // A manifest or part that exceeds its bound is wrong too.
  return absl::IsDataLoss(status) || absl::IsResourceExhausted(status);
}

absl::StatusOr<bool> WasRemoved(ObjectStore& store,
                                const CheckpointPlace& place) {
  const absl::Status status = store.Stat(ManifestName(place)).status();
  if (absl::IsNotFound(status)) return true;
  RETURN_IF_ERROR(status);
  return false;
}

absl::StatusOr<std::optional<FoundCheckpoint>> ReadFound(
    ObjectStore& store, const CheckpointPlace& place) {
  absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> opened =
      MirroredCheckpoint::Open(store, place);
  if (absl::IsNotFound(opened.status())) return std::nullopt;
  if (!opened.ok() && !IsDamage(opened.status())) return opened.status();
  FoundCheckpoint found;
  found.place = place;
  found.problem = opened.status();
  if (opened.ok()) found.checkpoint = *std::move(opened);
  return found;
}

absl::StatusOr<std::vector<CheckpointPlace>> FindPlaces(
    ObjectStore& store, const MirrorChoice& choice) {
  std::pair<int64_t, int64_t> at;
  if (!choice.checkpoint.empty()) {
    ASSIGN_OR_RETURN(at, ParseCheckpoint(choice.checkpoint));
  }
  absl::StatusOr<std::vector<CheckpointPlace>> listed =
      mirror::ListCheckpoints(store);
  if (!listed.ok() && !absl::IsNotFound(listed.status())) {
    return listed.status();
  }
  if (!listed.ok() || listed->empty()) {
    return NoCheckpoint(absl::StrCat(
        store.GetUrl(""), " has no whole checkpoint: check the URL, which is "
        "the value of --mirror of the coordinator"));
  }
  std::vector<CheckpointPlace> places = *std::move(listed);
  if (!choice.run.empty()) {
    ASSIGN_OR_RETURN(const std::string uid,
                     FindRun(store, places, choice.run));
    places = OfUid(places, uid);
  }
  if (choice.checkpoint.empty()) return places;
  std::vector<CheckpointPlace> matching;
  std::vector<std::string> others;
  for (const CheckpointPlace& place : places) {
    if (std::make_pair(place.run_epoch, place.commit_seq) == at) {
      matching.push_back(place);
    } else {
      others.push_back(FormatPlace(place));
    }
  }
  if (matching.empty()) {
    return NoCheckpoint(absl::StrCat(store.GetUrl(""), " has no checkpoint ",
                                     choice.checkpoint, "; it has ",
                                     JoinSome(others)));
  }
  if (matching.size() > 1) {
    ASSIGN_OR_RETURN(const std::string names,
                     NameRuns(store, matching, UidsOf(matching)));
    return SeveralRuns(absl::StrCat("several runs have a checkpoint ",
                                    choice.checkpoint),
                       names);
  }
  return matching;
}

absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> OpenOne(
    ObjectStore& store, const MirrorChoice& choice) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointPlace> places,
                   FindPlaces(store, choice));
  const std::vector<std::string> uids = UidsOf(places);
  if (uids.size() > 1) {
    ASSIGN_OR_RETURN(const std::string names, NameRuns(store, places, uids));
    return SeveralRuns(absl::StrCat(store.GetUrl(""),
                                    " has the checkpoints of ", uids.size(),
                                    " runs"),
                       names);
  }
  absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> opened =
      MirroredCheckpoint::Open(store, places.back());
  if (IsDamage(opened.status())) {
    return WithHint(opened.status(),
                    absl::StrCat("`atoll checkpoint verify ", store.GetUrl(""),
                                 "` says which checkpoints are whole; name one "
                                 "with --checkpoint."));
  }
  return opened;
}

absl::Status CheckMemoryFor(int64_t bytes, absl::string_view what) {
  const MachineFacts machine = ReadMachineFacts("/", "/");
  const int64_t free = machine.available_memory_bytes > 0
                           ? machine.available_memory_bytes
                           : machine.memory_bytes;
  if (bytes <= free) return absl::OkStatus();
  return WithHint(
      WithExitCode(
          WithReason(absl::ResourceExhaustedError(absl::StrCat(
                         what, " needs ", FormatBytes(bytes),
                         " of memory, and this machine has ",
                         FormatBytes(free), " free")),
                     "NOT_ENOUGH_MEMORY"),
          ExitCode::kPreflightFailed),
      "Use a machine with more memory, or end other programs.");
}

Json DescribeFound(const FoundCheckpoint& found) {
  const CheckpointPlace& place = found.place;
  storage::v1::MirrorManifest manifest;
  int64_t size_bytes = 0;
  if (found.checkpoint != nullptr) {
    manifest = found.checkpoint->manifest();
    size_bytes = found.checkpoint->PartBytes();
  }
  Json data;
  data["run_id"] = manifest.run_id();
  data["run_uid"] = place.run_uid;
  data["run_epoch"] = absl::StrCat(place.run_epoch);
  data["commit_seq"] = absl::StrCat(place.commit_seq);
  data["checkpoint"] = FormatPlace(place);
  data["pin_id"] = manifest.pin().pin_id();
  data["create_time"] = FormatTimestamp(FromProto(manifest.create_time()));
  data["suspect"] = manifest.pin().suspect();
  data["size_bytes"] = size_bytes;
  data["problem"] = std::string(found.problem.message());
  return data;
}

}  // namespace atl::cli
