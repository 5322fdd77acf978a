#include "server/waiters/push_waiters.h"

#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "base/status/refusal.h"

namespace atl::server {

std::vector<PushWaiters::Waiter>::iterator PushWaiters::Entry::Find(
    const WaiterGate* gate) {
  return absl::c_find_if(
      waiters, [gate](const Waiter& one) { return one.gate.get() == gate; });
}

bool PushWaiters::Entry::NobodySends() const {
  return absl::c_none_of(waiters, [](const Waiter& one) { return one.sends; });
}

void PushWaiters::Add(const ContributionKey& key,
                      std::shared_ptr<WaiterGate> gate) {
  MutexLock lock(&mutex_);
  entries_[key].waiters.push_back({std::move(gate)});
}

bool PushWaiters::AddBounded(const ContributionKey& key,
                             std::shared_ptr<WaiterGate> gate) {
  std::shared_ptr<WaiterGate> in_its_place;
  {
    MutexLock lock(&mutex_);
    // Any seq: it is the last part of the order of keys.
    const auto begin =
        entries_.lower_bound({key.run_epoch, key.fragment, key.slot,
                              std::numeric_limits<int64_t>::min()});
    size_t count = 0;
    std::vector<Waiter>* with_idle = nullptr;
    std::vector<Waiter>::iterator idle;
    for (auto it = begin;
         it != entries_.end() && it->first.run_epoch == key.run_epoch &&
         it->first.fragment == key.fragment && it->first.slot == key.slot;
         ++it) {
      std::vector<Waiter>& waiters = it->second.waiters;
      count += waiters.size();
      if (with_idle != nullptr) continue;
      idle = absl::c_find_if(waiters,
                             [](const Waiter& one) { return !one.sends; });
      if (idle != waiters.end()) with_idle = &waiters;
    }
    if (count >= kWaitingMax) {
      if (with_idle == nullptr) return false;
      in_its_place = std::move(idle->gate);
      with_idle->erase(idle);
    }
    entries_[key].waiters.push_back({std::move(gate)});
  }
  if (in_its_place != nullptr) {
    in_its_place->Call(RefuseForNow(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
        "too many streams of this slot and fragment wait; call again later",
        absl::Seconds(1)));
  }
  return true;
}

bool PushWaiters::EndSending(const ContributionKey& key,
                             const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  const auto found = it->second.Find(gate);
  if (found == it->second.waiters.end()) return false;
  found->sends = false;
  return it->second.NobodySends();
}

bool PushWaiters::Remove(const ContributionKey& key, const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  Entry& entry = it->second;
  const auto found = entry.Find(gate);
  if (found == entry.waiters.end()) return false;
  entry.waiters.erase(found);
  const bool nobody_sends = entry.NobodySends();
  if (entry.waiters.empty()) entries_.erase(it);
  return nobody_sends;
}

void PushWaiters::Settle(const ContributionKey& key,
                         const absl::Status& status) {
  Entry entry;
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(key);
    if (it == entries_.end()) return;
    entry = std::move(it->second);
    entries_.erase(it);
  }
  for (const Waiter& one : entry.waiters) one.gate->Call(status);
}

void PushWaiters::SettleAll(const absl::Status& status) {
  std::map<ContributionKey, Entry> entries;
  {
    MutexLock lock(&mutex_);
    entries.swap(entries_);
  }
  for (const auto& [key, entry] : entries) {
    for (const Waiter& one : entry.waiters) one.gate->Call(status);
  }
}

void PushWaiters::SettleSlot(int32_t slot, const absl::Status& status) {
  std::vector<Entry> entries;
  {
    MutexLock lock(&mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->first.slot != slot || it->first.is_import()) {
        ++it;
        continue;
      }
      entries.push_back(std::move(it->second));
      it = entries_.erase(it);
    }
  }
  for (const Entry& entry : entries) {
    for (const Waiter& one : entry.waiters) one.gate->Call(status);
  }
}

std::set<int32_t> PushWaiters::Slots() {
  std::set<int32_t> slots;
  MutexLock lock(&mutex_);
  for (const auto& [key, entry] : entries_) {
    if (!key.is_import()) slots.insert(key.slot);
  }
  return slots;
}

void PushWaiters::Tell(const ContributionKey& key,
                       void (PushWaiter::*event)()) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) waiters = it->second.waiters;
  }
  for (const Waiter& one : waiters) one.gate->Call(event);
}

}  // namespace atl::server
