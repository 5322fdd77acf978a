#include "server/core/places.h"

#include <algorithm>

namespace atl::server {

Places::Places(int count_max)
    : count_max_(static_cast<size_t>(std::max(1, count_max))),
      going_count_max_(std::max<size_t>(1, count_max_ / 4)) {}

Places::Answer Places::Take(int64_t holder, absl::string_view caller) {
  Answer answer;
  if (callers_of_.size() >= count_max_) {
    const auto own = places_of_.find(caller);
    answer.displaced =
        FindDisplaced(own == places_of_.end() ? 0 : own->second.size());
    if (!answer.displaced.has_value()) return answer;
    Leave(*answer.displaced);
    going_.insert(*answer.displaced);
  }
  answer.is_taken = true;
  callers_of_.emplace(holder, caller);
  places_of_[std::string(caller)].insert(holder);
  return answer;
}

std::optional<int64_t> Places::FindDisplaced(size_t count) const {
  if (going_.size() >= going_count_max_) return std::nullopt;
  const std::set<int64_t>* most = nullptr;
  for (const auto& [caller, places] : places_of_) {
    if (most == nullptr || places.size() > most->size() ||
        (places.size() == most->size() && *places.rbegin() > *most->rbegin())) {
      most = &places;
    }
  }
  if (most == nullptr || count + 1 >= most->size()) return std::nullopt;
  return *most->rbegin();
}

void Places::Leave(int64_t holder) {
  const auto it = callers_of_.find(holder);
  if (it == callers_of_.end()) return;
  const auto places = places_of_.find(it->second);
  places->second.erase(holder);
  if (places->second.empty()) places_of_.erase(places);
  callers_of_.erase(it);
}

void Places::Remove(int64_t holder) {
  Leave(holder);
  going_.erase(holder);
}

}  // namespace atl::server
