#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/layout/digest.h"
#include "base/mirror/mirror_manifest.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/checkpoint/checkpoint_commands.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

using storage::v1::MirrorManifest;

Json VersionsJson(const MirrorManifest& manifest) {
  Json versions = Json::array();
  for (const v1::FragmentVersion& version : manifest.pin().cut()) {
    versions.push_back(
        {{"fragment", version.fragment()},
         {"version", absl::StrCat(version.version())},
         {"commit_seq", absl::StrCat(version.commit_seq())},
         {"digest", Digest128::FromProto(version.digest()).ToHex()}});
  }
  return versions;
}

Json MembersJson(const MirrorManifest& manifest) {
  Json members = Json::array();
  for (const storage::v1::MemberSnapshot& snapshot : manifest.members()) {
    const storage::v1::MemberSet& member = snapshot.member();
    members.push_back({{"slot", member.slot()},
                       {"island_id", member.island_id()},
                       {"state", EnumName(member.state())},
                       {"next_seq", absl::StrCat(member.next_seq())},
                       {"revoked", member.revoked()}});
  }
  return members;
}

Json PartsJson(const MirrorManifest& manifest) {
  Json parts = Json::array();
  for (const storage::v1::MirrorPart& part : manifest.parts()) {
    parts.push_back(
        {{"shard", part.shard()},
         {"fragment", part.fragment()},
         {"name", mirror::PartName(mirror::GetPlace(manifest), part.shard(),
                                   part.fragment(), part.sha256())},
         {"size_bytes", part.size_bytes()},
         {"sha256", part.sha256()}});
  }
  return parts;
}

// "0 to 3 at version 12, 4 at 11".
std::string DescribeVersions(const MirrorManifest& manifest) {
  std::vector<std::string> ranges;
  const auto& cut = manifest.pin().cut();
  for (int begin = 0; begin < cut.size();) {
    int end = begin + 1;
    while (end < cut.size() && cut[end].version() == cut[begin].version()) {
      ++end;
    }
    std::string range = absl::StrCat("fragment ", begin);
    if (end - begin > 1) {
      range = absl::StrCat("fragments ", begin, " to ", end - 1);
    }
    ranges.push_back(
        absl::StrCat(range, " at version ", cut[begin].version()));
    begin = end;
  }
  return absl::StrJoin(ranges, ", ");
}

// "3: 2 READY, 1 REMOVED".
std::string DescribeMembers(const MirrorManifest& manifest) {
  std::map<std::string, int> counts;
  for (const storage::v1::MemberSnapshot& snapshot : manifest.members()) {
    ++counts[EnumName(snapshot.member().state())];
  }
  std::vector<std::string> words;
  for (const auto& [state, count] : counts) {
    words.push_back(absl::StrCat(count, " ", state));
  }
  if (words.empty()) return "none";
  return absl::StrCat(manifest.members_size(), ": ",
                      absl::StrJoin(words, ", "));
}

absl::Status Show(Context& context, const MirrorChoice& choice) {
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenMirror(context, choice.url, interrupt.first()));
  FoundCheckpoint found;
  ASSIGN_OR_RETURN(found.checkpoint, OpenOne(*store, choice));
  const MirrorManifest& manifest = found.checkpoint->manifest();
  found.place = mirror::GetPlace(manifest);
  const v1::RunSpec& spec = manifest.spec();
  const RunLayout& layout = found.checkpoint->layout();

  Json data = DescribeFound(found);
  data.erase("problem");
  data["url"] = store->GetUrl(mirror::PlaceName(found.place));
  data["model"] = DescribeModel(spec);
  data["element_count"] = layout.element_count();
  data["layout_fingerprint"] = absl::StrFormat("%016x", layout.fingerprint());
  data["shard_count"] = manifest.shard_count();
  data["array_names"] = std::vector<std::string>(
      manifest.array_names().begin(), manifest.array_names().end());
  data["token_count"] = absl::StrCat(TokenCount(manifest));
  data["versions"] = VersionsJson(manifest);
  data["members"] = MembersJson(manifest);
  data["parts"] = PartsJson(manifest);

  Fields fields;
  fields.Add("run", manifest.run_id());
  fields.Add("run_uid", manifest.run_uid());
  fields.Add("checkpoint", FormatPlace(found.place));
  fields.AddText("cut", absl::StrCat(manifest.pin().pin_id(),
                                     ": the state after commit ",
                                     found.place.commit_seq - 1));
  fields.Add("time", FormatTimestamp(FromProto(manifest.create_time())));
  if (manifest.pin().suspect()) {
    fields.AddText("suspect", "it holds commits outside the run's band");
  }
  fields.AddText("model", DescribeModel(spec));
  fields.AddText("versions", DescribeVersions(manifest));
  fields.AddText("trained on",
                 DescribeTokens(manifest));
  fields.AddText("islands", DescribeMembers(manifest));
  fields.AddText(
      "parts",
      absl::StrCat(manifest.parts_size(), " of ", manifest.shard_count(),
                   " shards, ", FormatBytes(found.checkpoint->PartBytes()),
                   ": ", absl::StrJoin(manifest.array_names(), ", ")));
  fields.Add("place", store->GetUrl(mirror::PlaceName(found.place)));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddCheckpointShow(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("show", "Show a checkpoint in a mirror");
  command.Footer(
      "Reads the checkpoint's manifest only, without a cluster. With -o json "
      "the\n"
      "output also has each version, island and part.\n"
      "Examples:\n"
      "  atoll checkpoint show s3://models/atoll --run spring\n"
      "  atoll checkpoint show file:///mnt/atoll --checkpoint 1/40");
  auto choice = std::make_shared<MirrorChoice>();
  AddMirrorUrl(command, *choice);
  AddMirrorRun(command, *choice);
  AddMirrorCheckpoint(command, *choice,
                      "EPOCH/COMMIT, as `atoll checkpoint list` shows it; "
                      "default: the newest");
  SetAction(command, context, Show, choice);
}

}  // namespace atl::cli
