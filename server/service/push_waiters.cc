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

int PushWaiters::EndSending(const ContributionKey& key) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return 0;
  return --it->second.sending_count;
}

int PushWaiters::Remove(const ContributionKey& key, const WaiterGate* gate,
                        bool sending) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return 0;
  Entry& entry = it->second;
  const auto found =
      std::find_if(entry.gates.begin(), entry.gates.end(),
                   [gate](const auto& other) { return other.get() == gate; });
  if (found == entry.gates.end()) return entry.sending_count;
  entry.gates.erase(found);
  if (sending) --entry.sending_count;
  const int left = entry.sending_count;
  if (entry.gates.empty()) entries_.erase(it);
  return left;
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

}  // namespace atl::server
