#include "coordinator/core/state/mirrored_run.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint's manifest cannot continue a run: ", what));
}

// False if sums with it may overflow.
bool IsCount(int64_t number) { return number >= 0 && number <= INT64_MAX / 4; }

absl::Status CheckPoint(const storage::v1::RestorePoint& point) {
  bool is_good = IsCount(point.fragment_token_count());
  for (const storage::v1::FragmentSnapshot& fragment : point.fragments()) {
    is_good = is_good && IsCount(fragment.token_count());
  }
  for (const v1::DataPosition& position : point.data_positions()) {
    is_good = is_good && IsCount(position.position());
  }
  for (const int64_t position : point.local_positions()) {
    is_good = is_good && IsCount(position);
  }
  if (is_good) return absl::OkStatus();
  return Refuse("a token count or data position of its cut is out of range");
}

absl::Status Check(const storage::v1::MirrorManifest& manifest) {
  if (manifest.format() != kManifestFormat) {
    return Refuse(absl::StrCat("it has format ", manifest.format(),
                               ", and this program knows ", kManifestFormat));
  }
  RETURN_IF_ERROR(CheckId("run_id", manifest.run_id()));
  if (manifest.run_uid().size() != 32 ||
      manifest.run_uid().find_first_not_of("0123456789abcdef") !=
          std::string::npos) {
    return Refuse("run_uid is malformed");
  }
  const v1::Pin& pin = manifest.pin();
  RETURN_IF_ERROR(CheckId("pin_id", pin.pin_id()));
  if (manifest.run_epoch() < 1 || manifest.run_epoch() > kSeqJump ||
      pin.commit_seq() < 1 || pin.commit_seq() > INT64_MAX - 2 * kSeqJump) {
    return Refuse("run_epoch or commit_seq is out of range");
  }
  const absl::StatusOr<RunLayout> layout =
      RunLayout::Create(manifest.spec().layout());
  if (!layout.ok()) return Refuse(layout.status().message());
  const int32_t fragment_count = layout->fragment_count();
  if (!pin.checkpoint() || pin.cut_size() != fragment_count ||
      manifest.point().fragments_size() != fragment_count) {
    return Refuse("its cut does not have the fragments of its layout");
  }
  if (manifest.started().version0_size() != fragment_count) {
    return Refuse("it lacks version 0, as those of an earlier program do");
  }
  for (int32_t f = 0; f < fragment_count; ++f) {
    if (pin.cut(f).fragment() != f ||
        manifest.started().version0(f).fragment() != f) {
      return Refuse("its fragments are not in order");
    }
    const v1::FragmentVersion& version = pin.cut(f);
    if (version.version() < 0 || version.commit_seq() < 0 ||
        version.commit_seq() >= pin.commit_seq()) {
      return Refuse("a version of its cut is out of range");
    }
  }
  RETURN_IF_ERROR(CheckPoint(manifest.point()));
  std::set<std::string> names;
  for (int slot = 0; slot < manifest.members_size(); ++slot) {
    const storage::v1::MemberSet& member = manifest.members(slot).member();
    RETURN_IF_ERROR(CheckId("island_id", member.island_id()));
    if (member.slot() != slot) return Refuse("its members are not in order");
    if (!names.insert(member.island_id()).second) {
      return Refuse(
          absl::StrCat("it has two members ", member.island_id()));
    }
    for (const int64_t number : {member.island_epoch(), member.next_seq()}) {
      if (!IsCount(number)) {
        return Refuse("a member's island_epoch or next_seq is out of range");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<storage::v1::RunCreated> ContinueRun(
    const storage::v1::MirrorManifest& manifest, absl::Time now,
    const ReachedNumbers& reached) {
  RETURN_IF_ERROR(Check(manifest));
  storage::v1::RunCreated created;
  created.set_run_id(manifest.run_id());
  created.set_run_uid(manifest.run_uid());
  *created.mutable_spec() = manifest.spec();
  // Also for the islands' epochs, which jumped as far before.
  const int64_t epoch_jump =
      std::max<int64_t>(0, reached.run_epoch - manifest.run_epoch()) +
      kEpochJump;
  created.set_run_epoch(manifest.run_epoch() + epoch_jump);
  storage::v1::MirroredRun& mirrored = *created.mutable_mirrored();
  *mirrored.mutable_started() = manifest.started();
  *mirrored.mutable_point() = manifest.point();
  v1::Pin& pin = *mirrored.mutable_pin();
  pin = manifest.pin();
  pin.clear_keep_bytes_max();
  pin.mutable_mirror()->set_run_epoch(manifest.run_epoch());
  *pin.mutable_mirror()->mutable_create_time() = manifest.create_time();
  // The run continues under another epoch, and its newest checkpoint must too.
  pin.mutable_mirror()->set_must_repeat(true);
  v1::Restore& restore = *mirrored.mutable_restore();
  restore.set_run_epoch(created.run_epoch());
  restore.set_commit_seq(
      JumpSeq(std::max(pin.commit_seq(), reached.commit_seq)));
  restore.set_cut_commit_seq(pin.commit_seq());
  restore.set_pin_id(pin.pin_id());
  *restore.mutable_time() = ToProto(now);
  for (const storage::v1::MemberSnapshot& member : manifest.members()) {
    storage::v1::MemberSnapshot& added = *mirrored.add_members();
    added = member;
    storage::v1::MemberSet& record = *added.mutable_member();
    record.clear_session_sha256();
    record.set_island_epoch(record.island_epoch() + epoch_jump);
    if (record.state() == v1::ISLAND_STATE_JOINING ||
        record.state() == v1::ISLAND_STATE_READY) {
      record.set_state(v1::ISLAND_STATE_LOST);
      // It has been away since now, so no other island takes its slot yet.
      *added.mutable_set_time() = restore.time();
    }
    // It has no commits to sit out any longer.
    added.clear_sits_out_until();
    const int slot = record.slot();
    // Another island may have taken the slot since the cut: never forwards.
    added.set_local_position(
        slot < manifest.point().local_positions_size()
            ? std::min(added.local_position(),
                       manifest.point().local_positions(slot))
            : 0);
  }
  return created;
}

storage::v1::RunSnapshot MakeRunSnapshot(
    const storage::v1::RunCreated& created, absl::Time time) {
  const storage::v1::MirroredRun& mirrored = created.mirrored();
  storage::v1::RunSnapshot snapshot;
  *snapshot.mutable_created() = created;
  snapshot.mutable_created()->clear_mirrored();
  *snapshot.mutable_create_time() = ToProto(time);
  snapshot.mutable_state()->set_state(v1::RUN_STATE_STARTING);
  *snapshot.mutable_started() = mirrored.started();
  *snapshot.mutable_members() = mirrored.members();
  *snapshot.mutable_fragments() = mirrored.point().fragments();
  for (int32_t f = 0; f < snapshot.fragments_size(); ++f) {
    *snapshot.mutable_fragments(f)->mutable_newest() = mirrored.pin().cut(f);
  }
  snapshot.set_commit_seq(mirrored.restore().commit_seq());
  snapshot.set_history_begin(snapshot.commit_seq() + 1);
  *snapshot.mutable_last_commit_time() = mirrored.restore().time();
  *snapshot.mutable_data_positions() = mirrored.point().data_positions();
  snapshot.set_fragment_token_count(mirrored.point().fragment_token_count());
  storage::v1::PinSnapshot& pin = *snapshot.add_pins();
  *pin.mutable_pin_set()->mutable_pin() = mirrored.pin();
  *pin.mutable_pin_set()->mutable_point() = mirrored.point();
  *pin.mutable_create_time() = ToProto(time);
  *snapshot.add_restores() = mirrored.restore();
  *snapshot.mutable_restored_cut() = mirrored.pin().cut();
  // Evaluations up to the cut are not known any longer, and not repeated.
  snapshot.set_evaluations_begin(mirrored.pin().cut(0).version());
  return snapshot;
}

}  // namespace atl::coordinator
