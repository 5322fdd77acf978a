#include "coordinator/service/waiting_calls.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status/refusal.h"

namespace atl::coordinator {
namespace {

using Bound = WaitingCalls::Bound;

bool Fits(const Bound& used, size_t bytes, const Bound& bound) {
  if (used.call_count == 0) return true;
  return used.call_count < bound.call_count &&
         used.bytes + bytes <= bound.bytes;
}

void Add(Bound& used, size_t bytes) {
  ++used.call_count;
  used.bytes += bytes;
}

void Subtract(Bound& used, size_t bytes) {
  --used.call_count;
  used.bytes -= bytes;
}

template <typename Uses, typename Key>
Bound Find(const Uses& uses, const Key& key) {
  const auto found = uses.find(key);
  return found == uses.end() ? Bound() : found->second;
}

template <typename Uses, typename Key>
void Remove(Uses& uses, const Key& key, size_t bytes) {
  const auto found = uses.find(key);
  if (found == uses.end()) return;
  Subtract(found->second, bytes);
  if (found->second.call_count == 0) uses.erase(found);
}

// Without TLS all callers have the operators' rank.
absl::string_view OfRank(CallRank rank) {
  if (rank == CallRank::kIsland) return " of islands";
  return rank == CallRank::kReader ? " of readers" : "";
}

absl::Status QueueFull(const std::string& whose) {
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
      absl::StrCat("too many calls", whose, " wait for the coordinator"),
      absl::Seconds(1));
}

}  // namespace

absl::Status WaitingCalls::Admit(const CallOrigin& origin) {
  if (!Fits(all_, origin.bytes, bounds_.all)) return QueueFull("");
  const bool is_reader = origin.rank == CallRank::kReader;
  Bound& of_rank = ranks_[static_cast<size_t>(origin.rank)];
  if ((is_reader && !Fits(of_rank, origin.bytes, bounds_.readers)) ||
      (origin.rank == CallRank::kIsland &&
       !Fits(of_rank, origin.bytes, bounds_.islands))) {
    return QueueFull(std::string(OfRank(origin.rank)));
  }
  const RunRank run = {origin.run_id, origin.rank};
  if (!origin.run_id.empty() &&
      !Fits(Find(runs_, run), origin.bytes,
            is_reader ? bounds_.a_run_readers : bounds_.a_run)) {
    return QueueFull(
        absl::StrCat(OfRank(origin.rank), " for run ", origin.run_id));
  }
  if (!origin.caller.empty() &&
      !Fits(Find(callers_, origin.caller), origin.bytes,
            is_reader ? bounds_.a_reader : bounds_.a_caller)) {
    return QueueFull(absl::StrCat(" of ", origin.caller));
  }
  Add(all_, origin.bytes);
  Add(of_rank, origin.bytes);
  if (!origin.run_id.empty()) Add(runs_[run], origin.bytes);
  if (!origin.caller.empty()) Add(callers_[origin.caller], origin.bytes);
  return absl::OkStatus();
}

void WaitingCalls::Release(const CallOrigin& origin) {
  Subtract(all_, origin.bytes);
  Subtract(ranks_[static_cast<size_t>(origin.rank)], origin.bytes);
  Remove(runs_, RunRank{origin.run_id, origin.rank}, origin.bytes);
  Remove(callers_, origin.caller, origin.bytes);
}

}  // namespace atl::coordinator
