#include "coordinator/service/waiting_calls.h"

#include "absl/strings/str_cat.h"
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

// The use by `key`; an empty key has no bound.
template <typename Uses>
Bound Find(const Uses& uses, const std::string& key) {
  const auto found = uses.find(key);
  return key.empty() || found == uses.end() ? Bound() : found->second;
}

template <typename Uses>
void Remove(Uses& uses, const std::string& key, size_t bytes) {
  const auto found = uses.find(key);
  if (found == uses.end()) return;
  if (--found->second.call_count == 0) {
    uses.erase(found);
  } else {
    found->second.bytes -= bytes;
  }
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
  if (origin.is_member && !Fits(members_, origin.bytes, bounds_.members)) {
    return QueueFull(" of islands");
  }
  if (!Fits(Find(runs_, origin.run_id), origin.bytes, bounds_.a_run)) {
    return QueueFull(absl::StrCat(" for run ", origin.run_id));
  }
  const Bound& bound = origin.rank == CallRank::kReader ? bounds_.a_reader
                                                        : bounds_.a_caller;
  if (!Fits(Find(callers_, origin.caller), origin.bytes, bound)) {
    return QueueFull(absl::StrCat(" of ", origin.caller));
  }
  Add(all_, origin.bytes);
  if (origin.is_member) Add(members_, origin.bytes);
  if (!origin.run_id.empty()) Add(runs_[origin.run_id], origin.bytes);
  if (!origin.caller.empty()) Add(callers_[origin.caller], origin.bytes);
  return absl::OkStatus();
}

void WaitingCalls::Release(const CallOrigin& origin) {
  --all_.call_count;
  all_.bytes -= origin.bytes;
  if (origin.is_member) {
    --members_.call_count;
    members_.bytes -= origin.bytes;
  }
  Remove(runs_, origin.run_id, origin.bytes);
  Remove(callers_, origin.caller, origin.bytes);
}

}  // namespace atl::coordinator
