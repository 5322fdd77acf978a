#include "coordinator/client/plan_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/layout/seal_name.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

// Bytes of a list item besides its content: field number and size.
constexpr size_t kItemBytesMax = 8;

// Moves `all` into lists made by `next`; starts a new list when one is full.
template <typename Message, typename Next>
void Deal(google::protobuf::RepeatedPtrField<Message>& all,
          size_t part_bytes_max, const Next& next) {
  google::protobuf::RepeatedPtrField<Message>* part = next();
  size_t bytes = 0;
  for (Message& one : all) {
    const size_t more = one.ByteSizeLong();
    if (!part->empty() && bytes + more > part_bytes_max) {
      part = next();
      bytes = 0;
    }
    bytes += more;
    *part->Add() = std::move(one);
  }
}

// Sets the number of each part, and of those after it.
template <typename Part>
void Number(std::deque<Part>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].set_part(static_cast<int32_t>(i));
    parts[i].set_parts_left(static_cast<int32_t>(parts.size() - 1 - i));
  }
}

absl::Status Missing(const v1::ServerRunPlan& change, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the plan of run ", change.run_id(),
                   " is a change, and the plan before did not have ", what));
}

// Adds the members of `before` to those that have changed since.
void AddMembers(v1::ServerRunPlan& before, v1::ServerRunPlan& change) {
  std::map<int32_t, v1::PlanMember> members;
  for (v1::PlanMember& member : *before.mutable_members()) {
    const int32_t slot = member.slot();
    members[slot] = std::move(member);
  }
  std::set<int32_t> gone(before.gone_slots().begin(),
                         before.gone_slots().end());
  for (const int32_t slot : change.gone_slots()) {
    gone.insert(slot);
    members.erase(slot);
  }
  for (v1::PlanMember& member : *change.mutable_members()) {
    const int32_t slot = member.slot();
    gone.erase(slot);
    members[slot] = std::move(member);
  }
  change.clear_members();
  for (auto& [slot, member] : members) {
    *change.add_members() = std::move(member);
  }
  change.mutable_gone_slots()->Assign(gone.begin(), gone.end());
}

// Adds what `before`, the run's plan before, says to `change`. The result is
// whole if `before` is, and otherwise a change since the plan before that.
// Moves from `before`.
//
// INVALID_ARGUMENT: `before` does not have what `change` names as unchanged.
absl::Status AddBefore(v1::ServerRunPlan& before, v1::ServerRunPlan& change) {
  for (v1::Seal& seal : *change.mutable_seals()) {
    if (!seal.contributions().empty()) continue;
    const auto held = std::find_if(
        before.mutable_seals()->begin(), before.mutable_seals()->end(),
        [&](const v1::Seal& one) { return IsSameSeal(one, seal); });
    if (held == before.mutable_seals()->end() ||
        (held->contributions().empty() && !before.is_change())) {
      return Missing(change, absl::StrCat("the seal of fragment ",
                                          seal.fragment(), ", version ",
                                          seal.version()));
    }
    seal = std::move(*held);
  }
  for (v1::Commit& commit : *change.mutable_commits()) {
    if (!commit.outcomes().empty()) continue;
    const auto held = std::find_if(
        before.mutable_commits()->begin(), before.mutable_commits()->end(),
        [&](const v1::Commit& one) {
          return one.commit_seq() == commit.commit_seq();
        });
    if (held == before.mutable_commits()->end() ||
        (held->outcomes().empty() && !before.is_change())) {
      return Missing(change, absl::StrCat("commit ", commit.commit_seq()));
    }
    commit = std::move(*held);
  }
  using Plan = v1::ServerRunPlan;
  const std::set<int32_t> older(before.unchanged_fields().begin(),
                                before.unchanged_fields().end());
  const auto unchanged = change.unchanged_fields();
  change.clear_unchanged_fields();
  for (const int32_t number : unchanged) {
    if (older.contains(number)) change.add_unchanged_fields(number);
    if (number == Plan::kMembersFieldNumber) {
      AddMembers(before, change);
      continue;
    }
    const auto* const field = Plan::descriptor()->FindFieldByNumber(number);
    if (field == nullptr || older.contains(number) ||
        number >= Plan::kIsChangeFieldNumber) {
      continue;
    }
    Plan::GetReflection()->SwapFields(&before, &change, {field});
  }
  change.set_is_change(before.is_change());
  if (!older.contains(Plan::kMembersFieldNumber)) change.clear_gone_slots();
  return absl::OkStatus();
}

// Splits the report of one shard if it does not fit a message.
std::deque<v1::ShardReport> CutShard(v1::ShardReport report,
                                     size_t part_bytes_max) {
  std::deque<v1::ShardReport> parts;
  if (report.ByteSizeLong() <= kWholeShardBytesMax) {
    parts.push_back(std::move(report));
    return parts;
  }
  v1::ShardReport name;
  name.set_run_id(report.run_id());
  name.set_run_uid(report.run_uid());
  name.set_run_epoch(report.run_epoch());
  name.set_shard(report.shard());
  v1::ShardReport lists;
  lists.mutable_stored()->Swap(report.mutable_stored());
  lists.mutable_refused()->Swap(report.mutable_refused());
  lists.mutable_gone()->Swap(report.mutable_gone());
  lists.mutable_statistics()->Swap(report.mutable_statistics());
  size_t bytes = report.ByteSizeLong();
  parts.push_back(std::move(report));
  const auto deal = [&](auto& all, auto list_of) {
    for (auto& one : all) {
      const size_t more = one.ByteSizeLong() + kItemBytesMax;
      if (bytes + more > part_bytes_max) {
        parts.push_back(name);
        bytes = name.ByteSizeLong();
      }
      bytes += more;
      *list_of(parts.back())->Add() = std::move(one);
    }
  };
  using Part = v1::ShardReport;
  deal(*lists.mutable_stored(), [](Part& p) { return p.mutable_stored(); });
  deal(*lists.mutable_refused(), [](Part& p) { return p.mutable_refused(); });
  deal(*lists.mutable_gone(), [](Part& p) { return p.mutable_gone(); });
  deal(*lists.mutable_statistics(),
       [](Part& p) { return p.mutable_statistics(); });
  Number(parts);
  return parts;
}

}  // namespace

std::deque<v1::WatchServerPlanResponse> CutPlan(v1::ServerPlan plan,
                                                size_t part_bytes_max) {
  std::deque<v1::WatchServerPlanResponse> parts;
  Deal(*plan.mutable_runs(), part_bytes_max, [&] {
    v1::ServerPlan& part = *parts.emplace_back().mutable_plan();
    part.set_revision(plan.revision());
    part.set_coordinator_epoch(plan.coordinator_epoch());
    return part.mutable_runs();
  });
  v1::ServerPlan& first = *parts.front().mutable_plan();
  if (plan.has_log()) *first.mutable_log() = plan.log();
  first.mutable_deleted_runs()->Swap(plan.mutable_deleted_runs());
  first.mutable_unchanged_run_ids()->Swap(plan.mutable_unchanged_run_ids());
  Number(parts);
  return parts;
}

void MergePlans(v1::ServerPlan skipped, v1::ServerPlan& next) {
  std::map<std::string, v1::ServerRunPlan*> runs;  // Those of `skipped`.
  for (v1::ServerRunPlan& run : *skipped.mutable_runs()) {
    runs[run.run_id()] = &run;
  }
  for (v1::ServerRunPlan& run : *next.mutable_runs()) {
    const auto before = runs.find(run.run_id());
    if (!run.is_change() || before == runs.end()) continue;
    CHECK_OK(AddBefore(*before->second, run));
  }
  google::protobuf::RepeatedPtrField<std::string> unchanged;
  unchanged.Swap(next.mutable_unchanged_run_ids());
  for (std::string& id : unchanged) {
    const auto run = runs.find(id);
    if (run == runs.end()) {
      next.add_unchanged_run_ids(std::move(id));
    } else {
      *next.add_runs() = std::move(*run->second);
    }
  }
  std::sort(next.mutable_runs()->begin(), next.mutable_runs()->end(),
            [](const v1::ServerRunPlan& a, const v1::ServerRunPlan& b) {
              return a.run_id() < b.run_id();
            });
}

std::deque<v1::ReportShardsRequest> CutReport(v1::ReportShardsRequest report,
                                              size_t part_bytes_max) {
  using Shards = google::protobuf::RepeatedPtrField<v1::ShardReport>;
  const auto cut = [&](Shards& all) {
    Shards shards;
    for (v1::ShardReport& shard : all) {
      for (v1::ShardReport& part : CutShard(std::move(shard), part_bytes_max)) {
        *shards.Add() = std::move(part);
      }
    }
    all.Clear();
    return shards;
  };
  Shards shards = cut(*report.mutable_shards());
  Shards changes = cut(*report.mutable_changes());
  std::deque<v1::ReportShardsRequest> parts;
  if (!shards.empty() || changes.empty()) {
    Deal(shards, part_bytes_max,
         [&] { return parts.emplace_back(report).mutable_shards(); });
  }
  if (!changes.empty()) {
    Deal(changes, part_bytes_max,
         [&] { return parts.emplace_back(report).mutable_changes(); });
  }
  Number(parts);
  return parts;
}

absl::Status PlanJoiner::AddUnchanged() {
  std::map<std::string, v1::ServerRunPlan*> before;
  for (v1::ServerRunPlan& run : *newest_.mutable_runs()) {
    before[run.run_id()] = &run;
  }
  for (v1::ServerRunPlan& run : *plan_.mutable_runs()) {
    if (!run.is_change()) continue;
    const auto held = before.find(run.run_id());
    if (held == before.end()) return Missing(run, "it");
    RETURN_IF_ERROR(AddBefore(*held->second, run));
  }
  if (plan_.unchanged_run_ids().empty()) return absl::OkStatus();
  std::map<std::string, v1::ServerRunPlan> runs;  // As a whole plan has them.
  for (v1::ServerRunPlan& run : *plan_.mutable_runs()) {
    runs[run.run_id()] = std::move(run);
  }
  for (const std::string& id : plan_.unchanged_run_ids()) {
    const auto run = before.find(id);
    if (run == before.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", plan_.revision(), " names run ", id,
                       " as unchanged, and the plan before did not have it"));
    }
    runs[id] = std::move(*run->second);
  }
  plan_.clear_runs();
  for (auto& [id, run] : runs) *plan_.add_runs() = std::move(run);
  plan_.clear_unchanged_run_ids();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::ServerPlan>> PlanJoiner::Add(
    v1::WatchServerPlanResponse response) {
  v1::ServerPlan& came = *response.mutable_plan();
  if (response.part() == 0) {
    part_count_ = 0;
    plan_ = std::move(came);
  } else if (response.part() != part_count_ ||
             ToPosition(came) != ToPosition(plan_) ||
             part_count_ >= kPlanPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "part ", response.part(), " of plan ", came.revision(),
        " comes after part ", part_count_ - 1, " of ", plan_.revision()));
  } else {
    for (v1::ServerRunPlan& run : *came.mutable_runs()) {
      *plan_.add_runs() = std::move(run);
    }
  }
  ++part_count_;
  if (response.parts_left() > 0) return std::optional<v1::ServerPlan>();
  // A relay may send an old plan again. Later plans do not refer to it.
  if (ToPosition(plan_) <= newest_position_) {
    return std::optional<v1::ServerPlan>();
  }
  if (absl::Status status = AddUnchanged(); !status.ok()) {
    newest_.Clear();  // Parts of it are in plan_.
    return status;
  }
  newest_ = std::exchange(plan_, {});
  newest_position_ = ToPosition(newest_);
  return newest_;
}

}  // namespace atl::coordinator
