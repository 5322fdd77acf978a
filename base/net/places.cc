#include "base/net/places.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::net {

Places::Places(const Limits& limits) : limits_(limits) {}

Places::Added Places::Add(const std::string& address) {
  Added added;
  added.id = ++last_;
  // No address has this form.
  const Owner owner = {true,
                       address.empty() ? absl::StrCat("one ", added.id)
                                       : address};
  const auto same = connections_.find(owner);
  if (same != connections_.end() &&
      static_cast<int>(same->second.size()) >= limits_.address_stranger_max) {
    added.ended = EndOldest(owner);
  } else if (stranger_count_ >= limits_.stranger_max) {
    added.ended = EndOldest(Greatest(true));
  } else if (count() >= limits_.count_max) {
    added.ended = EndOldest(Greatest(stranger_count_ > 0));
  }
  Insert(added.id, owner);
  return added;
}

std::optional<Places::Id> Places::Prove(Id id, const std::string& name) {
  const auto found = owners_.find(id);
  const Owner owner = {false, name};
  if (found == owners_.end() || found->second == owner) return std::nullopt;
  Remove(id);
  std::optional<Id> ended;
  const auto same = connections_.find(owner);
  if (same != connections_.end() &&
      static_cast<int>(same->second.size()) >= limits_.name_max) {
    ended = EndOldest(owner);
  }
  Insert(id, owner);
  return ended;
}

void Places::Remove(Id id) {
  const auto found = owners_.find(id);
  if (found == owners_.end()) return;
  const auto owned = connections_.find(found->second);
  owned->second.erase(id);
  if (owned->second.empty()) connections_.erase(owned);
  stranger_count_ -= found->second.is_stranger ? 1 : 0;
  owners_.erase(found);
}

void Places::Insert(Id id, const Owner& owner) {
  owners_[id] = owner;
  connections_[owner].insert(id);
  stranger_count_ += owner.is_stranger ? 1 : 0;
}

Places::Id Places::EndOldest(const Owner& owner) {
  const Id oldest = *connections_.find(owner)->second.begin();
  Remove(oldest);
  return oldest;
}

Places::Owner Places::Greatest(bool is_stranger) const {
  const std::pair<const Owner, std::set<Id>>* greatest = nullptr;
  for (const auto& entry : connections_) {
    if (entry.first.is_stranger != is_stranger) continue;
    if (greatest == nullptr ||
        entry.second.size() > greatest->second.size() ||
        (entry.second.size() == greatest->second.size() &&
         *entry.second.begin() < *greatest->second.begin())) {
      greatest = &entry;
    }
  }
  return greatest->first;
}

}  // namespace atl::net
