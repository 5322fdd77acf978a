#include "base/net/places.h"

#include "absl/strings/str_cat.h"

namespace atl::net {
namespace {

constexpr size_t kHostBytes = 8;     // A host has a /64.
constexpr size_t kNetworkBytes = 6;  // A customer has a /48 at most.

std::string NetworkOf(const std::string& key) {
  return key.size() == kHostBytes ? key.substr(0, kNetworkBytes) : key;
}

// True if `a` goes before `b`: it is larger, or as large and older.
bool GoesFirst(const std::set<Places::Id>& a, const std::set<Places::Id>& b) {
  return a.size() != b.size() ? a.size() > b.size() : *a.begin() < *b.begin();
}

// The set of `sets` that goes first among those that `counts` is true for, or
// null.
template <typename Sets, typename Counts>
auto FindFirst(const Sets& sets, Counts counts) {
  const typename Sets::value_type* first = nullptr;
  for (const auto& entry : sets) {
    if (counts(entry.first) &&
        (first == nullptr || GoesFirst(entry.second, first->second))) {
      first = &entry;
    }
  }
  return first;
}

}  // namespace

Places::Places(const Limits& limits) : limits_(limits) {}

Places::Added Places::Add(absl::string_view address_bytes) {
  Added added;
  added.id = ++last_;
  const Owner owner = {
      true, address_bytes.empty()
                // No address is as long.
                ? absl::StrCat("counts by itself: ", added.id)
                : std::string(address_bytes.substr(0, kHostBytes))};
  added.key = owner.key;
  added.ended = FindExcess(owner);
  if (added.ended.has_value()) Remove(*added.ended);
  Insert(added.id, owner);
  return added;
}

std::optional<Places::Id> Places::Prove(Id id, const std::string& name) {
  const auto found = owners_.find(id);
  const Owner owner = {false, name};
  if (found == owners_.end() || found->second == owner) return std::nullopt;
  Remove(id);
  std::optional<Id> ended;
  if (CountOf(owner) >= limits_.name_max) {
    ended = *connections_.find(owner)->second.begin();
    Remove(*ended);
  }
  Insert(id, owner);
  return ended;
}

void Places::Remove(Id id) {
  const auto found = owners_.find(id);
  if (found == owners_.end()) return;
  const auto erase = [id](auto& sets, const auto& key) {
    const auto set = sets.find(key);
    set->second.erase(id);
    if (set->second.empty()) sets.erase(set);
  };
  erase(connections_, found->second);
  if (found->second.is_stranger) {
    erase(networks_, NetworkOf(found->second.key));
    --stranger_count_;
  }
  owners_.erase(found);
}

void Places::Insert(Id id, const Owner& owner) {
  owners_[id] = owner;
  connections_[owner].insert(id);
  if (!owner.is_stranger) return;
  networks_[NetworkOf(owner.key)].insert(id);
  ++stranger_count_;
}

std::optional<Places::Id> Places::FindExcess(const Owner& owner) const {
  if (CountOf(owner) >= limits_.address_stranger_max) {
    return *connections_.find(owner)->second.begin();
  }
  const auto network = networks_.find(NetworkOf(owner.key));
  if (network != networks_.end() &&
      static_cast<int>(network->second.size()) >=
          limits_.network_stranger_max) {
    return *network->second.begin();
  }
  if (stranger_count_ >= limits_.stranger_max) return OldestStranger();
  if (count() < limits_.count_max) return std::nullopt;
  return stranger_count_ > 0 ? OldestStranger() : OldestOfAName();
}

int Places::CountOf(const Owner& owner) const {
  const auto found = connections_.find(owner);
  return found == connections_.end() ? 0
                                     : static_cast<int>(found->second.size());
}

Places::Id Places::OldestStranger() const {
  const std::string network =
      FindFirst(networks_, [](const std::string&) { return true; })->first;
  return *FindFirst(connections_,
                    [&](const Owner& owner) {
                      return owner.is_stranger &&
                             NetworkOf(owner.key) == network;
                    })
              ->second.begin();
}

Places::Id Places::OldestOfAName() const {
  return *FindFirst(connections_,
                    [](const Owner& owner) { return !owner.is_stranger; })
              ->second.begin();
}

}  // namespace atl::net
