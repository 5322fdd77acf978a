#include "server/service/push_waiters.h"

#include <algorithm>
#include <utility>

namespace atl::server {

void PushWaiters::Add(const ContributionKey& key,
                      std::shared_ptr<WaiterGate> gate) {
  MutexLock lock(&mutex_);
  Entry& entry = entries_[key];
  ++entry.sending_count;
  entry.gates.push_back(std::move(gate));
}

std::vector<std::shared_ptr<WaiterGate>>::iterator PushWaiters::Entry::Find(
    const WaiterGate* gate) {
  return std::find_if(gates.begin(), gates.end(), [gate](const auto& other) {
    return other.get() == gate;
  });
}

bool PushWaiters::EndSending(const ContributionKey& key,
                             const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  if (it->second.Find(gate) == it->second.gates.end()) return false;
  return --it->second.sending_count == 0;
}

bool PushWaiters::Remove(const ContributionKey& key, const WaiterGate* gate,
                         bool sending) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  Entry& entry = it->second;
  const auto found = entry.Find(gate);
  if (found == entry.gates.end()) return false;
  entry.gates.erase(found);
  if (sending) --entry.sending_count;
  const bool nobody_sends = entry.sending_count == 0;
  if (entry.gates.empty()) entries_.erase(it);
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
  for (const auto& gate : entry.gates) gate->Call(status);
}

void PushWaiters::Tell(const ContributionKey& key,
                       void (PushWaiter::*event)()) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) gates = it->second.gates;
  }
  for (const auto& gate : gates) gate->Call(event);
}

}  // namespace atl::server
