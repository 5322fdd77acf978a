#include "server/core/released_reads.h"

#include <set>
#include <utility>

namespace atl::server {
namespace {

// A caller's weight: divisible by every possible number of late versions.
constexpr int64_t kWorth = 60;
static_assert(ReleasedReads::kVersionCountMax + 1 <= 6);

}  // namespace

void ReleasedReads::Begin(int64_t reader, int64_t version, std::string caller) {
  versions_of_[reader] = version;
  versions_[version].callers_of[reader] = std::move(caller);
}

void ReleasedReads::End(int64_t reader) {
  const auto it = versions_of_.find(reader);
  if (it == versions_of_.end()) return;
  const auto version = versions_.find(it->second);
  version->second.callers_of.erase(reader);
  if (version->second.callers_of.empty()) versions_.erase(version);
  versions_of_.erase(it);
}

ReleasedReads::GivenUp ReleasedReads::OnReleased(int64_t version) {
  GivenUp given_up;
  const auto released = versions_.find(version);
  if (released == versions_.end()) return given_up;
  released->second.is_released = true;
  const auto one = FindOneTooMany();
  if (one == versions_.end()) return given_up;
  one->second.is_given_up = true;
  given_up.version = one->first;
  for (const auto& [reader, caller] : one->second.callers_of) {
    given_up.readers.push_back(reader);
  }
  return given_up;
}

std::map<int64_t, ReleasedReads::Version>::iterator
ReleasedReads::FindOneTooMany() {
  std::map<std::string, int64_t> late_counts;  // By caller.
  int late_count = 0;
  const auto callers = [](const Version& version) {
    std::set<std::string> names;
    for (const auto& [reader, caller] : version.callers_of) {
      names.insert(caller);
    }
    return names;
  };
  for (const auto& [number, version] : versions_) {
    if (!IsLate(version)) continue;
    ++late_count;
    for (const std::string& caller : callers(version)) ++late_counts[caller];
  }
  auto found = versions_.end();
  if (late_count <= kVersionCountMax) return found;
  int64_t found_worth = 0;
  for (auto it = versions_.begin(); it != versions_.end(); ++it) {
    if (!IsLate(it->second)) continue;
    int64_t worth = 0;
    for (const std::string& caller : callers(it->second)) {
      worth += kWorth / late_counts[caller];
    }
    // If two versions have equal weights, the newer one is given up.
    if (found == versions_.end() || worth <= found_worth) {
      found = it;
      found_worth = worth;
    }
  }
  return found;
}

}  // namespace atl::server
