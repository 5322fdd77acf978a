#include "base/mirror/cluster_object.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/mirror/mirror_json.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::mirror {
namespace {

using storage::v1::ClusterObject;
using storage::v1::CoordinatorStarted;

constexpr size_t kKeptCount = 2;
// A log that takes its place counts on from these numbers. The coordinator's
// epoch must also leave room for the numbers of plans.
constexpr int64_t kEpochMax = 1 << 22;
constexpr int64_t kNumberMax = INT64_MAX / 2;

absl::Status WrongCluster(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("not a cluster object that this program can use: ", what));
}

absl::Status CheckStarts(const ClusterObject& object) {
  if (object.starts().empty()) return WrongCluster("it has no start");
  int64_t before = 0;
  for (const CoordinatorStarted& start : object.starts()) {
    if (!start.log_secret().empty()) return WrongCluster("it has a secret");
    if (start.start_id().empty() ||
        start.cluster_id() != object.cluster_id() ||
        start.log_index() <= before ||
        start.coordinator_epoch() > object.coordinator_epoch()) {
      return WrongCluster("its starts are malformed");
    }
    before = start.log_index();
  }
  if (before > object.log_index()) {
    return WrongCluster("its starts are malformed");
  }
  return absl::OkStatus();
}

absl::Status CheckCluster(const ClusterObject& object) {
  if (object.format() != kClusterFormat) {
    return WrongCluster(absl::StrCat("its format is ", object.format(),
                                     ", not ", kClusterFormat));
  }
  if (!IsRandomId(object.cluster_id())) {
    return WrongCluster("its cluster_id is malformed");
  }
  if (object.coordinator_epoch() < 1 ||
      object.coordinator_epoch() > kEpochMax || object.log_index() < 1 ||
      object.log_index() > kNumberMax) {
    return WrongCluster("its coordinator_epoch or log_index is out of range");
  }
  RETURN_IF_ERROR(CheckStarts(object));
  for (const auto& server : object.servers()) {
    if (!ValidateId("", server.server_id()).ok()) {
      return WrongCluster("a server_id is malformed");
    }
  }
  std::set<std::string> deleted;
  for (const auto& run : object.deleted()) deleted.insert(run.run_uid());
  for (const auto& run : object.runs()) {
    // One of an earlier program has no run_uid.
    if (!ValidateId("", run.run_id()).ok()) {
      return WrongCluster("the id of a run is malformed");
    }
    // Servers would delete its files.
    if (!run.run_uid().empty() && deleted.count(run.run_uid()) > 0) {
      return WrongCluster(
          absl::StrCat("run ", run.run_id(), " is deleted in it too"));
    }
    for (const int64_t number :
         {run.placed().placement_epoch(), run.run_epoch(),
          run.restore_commit_seq()}) {
      if (number >= 0 && number <= kNumberMax) continue;
      return WrongCluster(
          absl::StrCat("a number of run ", run.run_id(), " is out of range"));
    }
    for (const std::string& server_id : run.placed().server_ids()) {
      if (!ValidateId("", server_id).ok()) {
        return WrongCluster(
            absl::StrCat("an owner of run ", run.run_id(), " is malformed"));
      }
    }
  }
  return absl::OkStatus();
}

// DATA_LOSS: the object is damaged, or of another format or place.
absl::StatusOr<ClusterObject> Read(ObjectStore& store,
                                   const ClusterPlace& place) {
  const std::string name = ClusterName(place);
  ASSIGN_OR_RETURN(const std::string json,
                   GetObject(store, name, kClusterBytesMax));
  ClusterObject object;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(json, &object);
  absl::Status status =
      parsed.ok() ? CheckCluster(object) : WrongCluster(parsed.ToString());
  if (status.ok() && (object.cluster_id() != place.cluster_id ||
                      object.log_index() != place.log_index)) {
    status = WrongCluster("it belongs to another cluster or place in the log");
  }
  if (!status.ok()) return Annotate(status, store.GetUrl(name));
  return object;
}

// True if an object with this error is left out: it is damaged, too large to be
// one, or was collected meanwhile.
bool IsUnusable(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsResourceExhausted(status);
}

// The objects below `prefix`, sorted.
absl::StatusOr<std::vector<ClusterPlace>> ListPlaces(ObjectStore& store,
                                                     absl::string_view prefix) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects,
                   store.List(prefix, kObjectCountMax));
  std::vector<ClusterPlace> places;
  for (const ObjectInfo& object : objects) {
    std::optional<ClusterPlace> place = ParseClusterName(object.name);
    if (place.has_value()) places.push_back(*std::move(place));
  }
  std::sort(places.begin(), places.end());
  return places;
}

// True if the log of `object` begins as the one of `found` did, up to the batch
// that `found` was made after. The same rule as coordinator/core/log_history.h,
// without proofs.
bool Continues(const ClusterObject& object, const ClusterObject& found) {
  const std::string& id = found.starts().rbegin()->start_id();
  const auto& starts = object.starts();
  int64_t superseded_end = 0;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    if (start->supersedes()) superseded_end = start->log_index();
    if (start->start_id() != id) continue;
    const auto next = std::next(start);
    if (next == starts.end() || found.log_index() < next->log_index()) {
      return true;
    }
  }
  // It may be of the log that this one took the place of, or its start may no
  // longer be among those that a log keeps.
  return found.log_index() < superseded_end ||
         found.log_index() < starts.begin()->log_index();
}

absl::Status OldCopy(ObjectStore& store, const ClusterPlace& found) {
  return absl::FailedPreconditionError(absl::StrCat(
      store.GetUrl(ClusterName(found)),
      " is of a log that has batches which this coordinator's log lacks: this "
      "one is an older copy, or another coordinator of the cluster runs, or a "
      "later `atoll-coordinator restore` took its place; it writes nothing about "
      "the cluster"));
}

}  // namespace

absl::StatusOr<std::vector<ClusterPlace>> ListClusters(ObjectStore& store) {
  ASSIGN_OR_RETURN(const std::vector<ClusterPlace> places,
                   ListPlaces(store, ClustersPrefix()));
  std::vector<ClusterPlace> newest;
  for (const ClusterPlace& place : places) {
    if (newest.empty() || newest.back().cluster_id != place.cluster_id) {
      newest.emplace_back();
    }
    newest.back() = place;
  }
  return newest;
}

absl::StatusOr<FoundCluster> ReadCluster(ObjectStore& store,
                                         absl::string_view cluster_id) {
  if (!IsRandomId(cluster_id)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster_id \"", cluster_id, "\" must be 32 lower-case hex digits"));
  }
  ASSIGN_OR_RETURN(const std::vector<ClusterPlace> places,
                   ListPlaces(store, ClusterPrefix(cluster_id)));
  absl::Status newest;
  FoundCluster found;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    absl::StatusOr<ClusterObject> object = Read(store, *place);
    if (object.ok()) {
      found.object = *std::move(object);
      return found;
    }
    if (!IsUnusable(object.status())) return object.status();
    newest.Update(object.status());
    found.warnings.push_back(std::string(object.status().message()));
  }
  if (!newest.ok()) return absl::DataLossError(newest.message());
  return absl::NotFoundError(
      absl::StrCat(store.GetUrl(""), " has no object of cluster ", cluster_id,
                   ": only a coordinator with --mirror writes one"));
}

absl::Status WriteCluster(ObjectStore& store, const ClusterObject& object) {
  if (const absl::Status status = CheckCluster(object); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  const ClusterPlace own = {object.cluster_id(), object.log_index()};
  absl::StatusOr<std::vector<ClusterPlace>> listed =
      ListPlaces(store, ClusterPrefix(own.cluster_id));
  // A directory appears with its first object.
  if (absl::IsNotFound(listed.status())) listed.emplace();
  RETURN_IF_ERROR(listed.status());
  const std::vector<ClusterPlace>& places = *listed;
  if (!places.empty() && places.back() > own) {
    return OldCopy(store, places.back());
  }
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const absl::StatusOr<ClusterObject> found = Read(store, *place);
    if (IsUnusable(found.status())) continue;
    RETURN_IF_ERROR(found.status());
    if (!Continues(object, *found)) return OldCopy(store, *place);
    break;
  }
  const absl::Status status = PutObject(store, ClusterName(own),
                                        ToJson(object), WriteMode::kCreate);
  if (!absl::IsAlreadyExists(status)) return status;
  ASSIGN_OR_RETURN(ClusterObject found, Read(store, own));
  *found.mutable_create_time() = object.create_time();
  if (google::protobuf::util::MessageDifferencer::Equals(found, object)) {
    return absl::OkStatus();
  }
  return OldCopy(store, own);
}

absl::StatusOr<int64_t> CollectClusters(ObjectStore& store,
                                        const ClusterPlace& newest) {
  if (!IsRandomId(newest.cluster_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", newest.cluster_id, "\" is no cluster_id"));
  }
  const std::string prefix = ClusterPrefix(newest.cluster_id);
  ASSIGN_OR_RETURN(std::vector<ClusterPlace> places, ListPlaces(store, prefix));
  while (!places.empty() && places.back() > newest) places.pop_back();
  int64_t removed_count = 0;
  for (size_t i = 0; i + kKeptCount < places.size(); ++i) {
    const std::string name = ClusterName(places[i]);
    ASSIGN_OR_RETURN(
        const bool is_newer,
        IsOfNewerFormat(store, name, kClusterFormat, kClusterBytesMax));
    if (is_newer) continue;
    RETURN_IF_ERROR(store.Remove(name));
    ++removed_count;
  }
  RETURN_IF_ERROR(store.RemoveUnfinished(prefix));
  return removed_count;
}

}  // namespace atl::mirror
