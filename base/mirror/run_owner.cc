#include "base/mirror/run_owner.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/mirror/mirror_json.h"
#include "base/mirror/mirror_names.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace atl::mirror {
namespace {

using storage::v1::RunOwner;

constexpr int64_t kOwnerBytesMax = 64 << 10;
constexpr size_t kKeptOwners = 2;

// Empty: `owner` is well-formed.
std::string WhyWrong(const RunOwner& owner) {
  if (owner.format() != kOwnerFormat) {
    return absl::StrCat("its format is ", owner.format(), ", not ",
                        kOwnerFormat);
  }
  if (!IsRandomId(owner.run_uid()) || !IsRandomId(owner.cluster_id()) ||
      !ValidateId("", owner.run_id()).ok()) {
    return "its run_id, run_uid or cluster_id is malformed";
  }
  if (owner.run_epoch() < 1 || owner.run_epoch() > kOwnerEpochMax ||
      owner.since_run_epoch() < 0 ||
      owner.since_run_epoch() > owner.run_epoch() ||
      owner.restore_commit_seq() < 0 ||
      owner.restore_commit_seq() > INT64_MAX / 2) {
    return "a number of it is out of range";
  }
  return "";
}

absl::StatusOr<RunOwner> ReadPlace(ObjectStore& store,
                                   const OwnerPlace& place) {
  const std::string name = OwnerName(place);
  absl::StatusOr<std::string> json = GetObject(store, name, kOwnerBytesMax);
  if (absl::IsResourceExhausted(json.status())) {
    return absl::DataLossError(json.status().message());
  }
  RETURN_IF_ERROR(json.status());
  RunOwner owner;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &owner);
  std::string wrong = parsed.ok() ? WhyWrong(owner) : parsed.ToString();
  if (wrong.empty() && (owner.run_uid() != place.run_uid ||
                        owner.run_epoch() != place.run_epoch)) {
    wrong = "it belongs to another run or epoch";
  }
  if (wrong.empty()) return owner;
  return absl::DataLossError(absl::StrCat(
      store.GetUrl(name), " does not say which cluster owns the run: ", wrong,
      ". Use a newer program, or remove it if no other cluster has the run"));
}

// Sorted.
absl::StatusOr<std::vector<OwnerPlace>> ListOwners(ObjectStore& store,
                                                   absl::string_view run_uid) {
  const absl::StatusOr<std::vector<ObjectInfo>> objects =
      store.List(OwnersPrefix(run_uid), kObjectCountMax);
  std::vector<OwnerPlace> places;
  // A directory appears with its first object.
  if (absl::IsNotFound(objects.status())) return places;
  RETURN_IF_ERROR(objects.status());
  for (const ObjectInfo& object : *objects) {
    std::optional<OwnerPlace> place = ParseOwnerName(object.name);
    if (place.has_value()) places.push_back(*std::move(place));
  }
  std::sort(places.begin(), places.end());
  return places;
}

// The first run_epoch since which the caller owns the run. `before`: the newest
// owner before it; null: it is the first.
absl::StatusOr<int64_t> FindSince(ObjectStore& store, const OwnerPlace* before,
                                  const RunOwner& own) {
  // Checkpoints of a mirror without owners are the run's own.
  if (before == nullptr) return 1;
  const absl::StatusOr<RunOwner> found = ReadPlace(store, *before);
  if (found.ok() && found->cluster_id() == own.cluster_id()) {
    return found->since_run_epoch();
  }
  // A damaged one may be another cluster's.
  if (!found.ok() && !absl::IsDataLoss(found.status()) &&
      !absl::IsNotFound(found.status())) {
    return found.status();
  }
  return own.run_epoch();
}

}  // namespace

absl::StatusOr<std::optional<RunOwner>> ReadOwner(ObjectStore& store,
                                                  absl::string_view run_uid) {
  ASSIGN_OR_RETURN(const std::vector<OwnerPlace> places,
                   ListOwners(store, run_uid));
  if (places.empty()) return std::nullopt;
  return ReadPlace(store, places.back());
}

absl::StatusOr<RunOwner> TakeOwnership(ObjectStore& store,
                                       const RunOwner& own) {
  if (const std::string wrong = WhyWrong(own); !wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the owner of run ", own.run_id(), ": ", wrong));
  }
  ASSIGN_OR_RETURN(std::vector<OwnerPlace> places,
                   ListOwners(store, own.run_uid()));
  const OwnerPlace place = {own.run_uid(), own.run_epoch()};
  if (!places.empty() && places.back() >= place) {
    return ReadPlace(store, places.back());
  }
  RunOwner taken = own;
  ASSIGN_OR_RETURN(
      const int64_t since,
      FindSince(store, places.empty() ? nullptr : &places.back(), own));
  taken.set_since_run_epoch(since);
  const absl::Status status =
      PutObject(store, OwnerName(place), ToJson(taken), WriteMode::kCreate);
  // Another one was faster.
  if (absl::IsAlreadyExists(status)) return ReadPlace(store, place);
  RETURN_IF_ERROR(status);
  places.push_back(place);
  for (size_t i = 0; i + kKeptOwners < places.size(); ++i) {
    RETURN_IF_ERROR(store.Remove(OwnerName(places[i])));
  }
  return taken;
}

bool IsOwner(const RunOwner& owner, const RunOwner& own) {
  return owner.run_uid() == own.run_uid() &&
         owner.run_epoch() == own.run_epoch() &&
         owner.cluster_id() == own.cluster_id();
}

}  // namespace atl::mirror
