#include "server/waiters/version_readers.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"

namespace atl::server {

absl::Status VersionReleased(int32_t fragment, int64_t version,
                             absl::string_view what) {
  return Refuse(absl::StatusCode::kOutOfRange, "VERSION_RELEASED",
                absl::StrCat("version ", version, " of fragment ", fragment,
                             " ", what, "; ask for the newest"));
}

VersionReaders::Reading VersionReaders::Begin(int32_t fragment, int64_t version,
                                              const Reader& reader) {
  MutexLock lock(&mutex_);
  Fragment& one = fragments_[fragment];
  one.reads.Begin(++last_number_, version, reader.caller);
  one.gates[last_number_] = reader.gate;
  return Reading(this, fragment, last_number_);
}

VersionReaders::Reading VersionReaders::BeginKept(const ContributionKey& key,
                                                  const Reader& reader) {
  MutexLock lock(&mutex_);
  Fragment& one = fragments_[key.fragment];
  one.kept[++last_number_] = key;
  one.gates[last_number_] = reader.gate;
  return Reading(this, key.fragment, last_number_);
}

void VersionReaders::OnReleased(int32_t fragment, int64_t version) {
  std::vector<std::shared_ptr<WaiterGate>> displaced;
  int64_t given_up = version;
  {
    MutexLock lock(&mutex_);
    Fragment& one = fragments_[fragment];
    const ReleasedReads::GivenUp found = one.reads.OnReleased(version);
    given_up = found.version;
    for (const int64_t reader : found.readers) {
      displaced.push_back(one.gates[reader]);
    }
  }
  const absl::Status status = VersionReleased(
      fragment, given_up, "was released, and too many such versions are read");
  for (const auto& gate : displaced) gate->CallDisplaced(status);
}

void VersionReaders::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  {
    MutexLock lock(&mutex_);
    for (const auto& [fragment, one] : fragments_) {
      for (const auto& [number, gate] : one.gates) gates.push_back(gate);
    }
  }
  for (const auto& gate : gates) gate->CallDisplaced(status);
}

void VersionReaders::OnKeptDropped(
    absl::FunctionRef<absl::Status(const ContributionKey&)> kept) {
  std::vector<std::pair<ContributionKey, std::shared_ptr<WaiterGate>>> read;
  {
    MutexLock lock(&mutex_);
    for (const auto& [fragment, one] : fragments_) {
      for (const auto& [number, key] : one.kept) {
        read.emplace_back(key, one.gates.at(number));
      }
    }
  }
  for (const auto& [key, gate] : read) {
    const absl::Status status = kept(key);
    if (!status.ok()) gate->CallDisplaced(status);
  }
}

void VersionReaders::End(int32_t fragment, int64_t number) {
  MutexLock lock(&mutex_);
  Fragment& one = fragments_[fragment];
  one.reads.End(number);
  one.gates.erase(number);
  one.kept.erase(number);
}

}  // namespace atl::server
