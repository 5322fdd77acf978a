// Tracks streams that read versions of a shard. If too many released ones are
// read, some streams must start over (server/core/released_reads.h). Readers of
// kept contributions end when these are dropped. Thread-safe. Calls a stream
// while holding only the stream's gate.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/core/released_reads.h"
#include "server/waiters/push_waiters.h"

namespace atl::server {

// OUT_OF_RANGE, VERSION_RELEASED. `what`: the message's verb phrase.
absl::Status VersionReleased(int32_t fragment, int64_t version,
                             absl::string_view what);

struct Reader {
  std::string caller;
  std::shared_ptr<WaiterGate> gate;
};

// Must outlive its Readings.
class VersionReaders {
 public:
  class Reading {
   public:
    Reading() = default;
    Reading(Reading&& other) noexcept { *this = std::move(other); }
    Reading& operator=(Reading&& other) noexcept {
      std::swap(readers_, other.readers_);
      std::swap(fragment_, other.fragment_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Reading() {
      if (readers_ != nullptr) readers_->End(fragment_, number_);
    }

   private:
    friend class VersionReaders;
    Reading(VersionReaders* readers, int32_t fragment, int64_t number)
        : readers_(readers), fragment_(fragment), number_(number) {}

    VersionReaders* readers_ = nullptr;
    int32_t fragment_ = 0;
    int64_t number_ = 0;
  };

  // Call before the lookup of the version, so that its release knows of it.
  Reading Begin(int32_t fragment, int64_t version, const Reader& reader);
  // The same for a kept contribution.
  Reading BeginKept(const ContributionKey& key, const Reader& reader);
  // The version can no longer be found. Its readers, or those of another
  // released version, may be told to end with VERSION_RELEASED (OnDisplaced).
  void OnReleased(int32_t fragment, int64_t version);
  // All readers are told to end with `status` (OnDisplaced).
  void EndAll(const absl::Status& status);
  // Kept contributions were dropped. Readers of one for which `kept` returns an
  // error are told to end with that error (OnDisplaced).
  void OnKeptDropped(
      absl::FunctionRef<absl::Status(const ContributionKey&)> kept);

 private:
  struct Fragment {
    ReleasedReads reads;
    // By reader's number; `kept` for readers of kept contributions.
    std::map<int64_t, std::shared_ptr<WaiterGate>> gates;
    std::map<int64_t, ContributionKey> kept;
  };

  void End(int32_t fragment, int64_t number);

  Mutex mutex_;
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, Fragment> fragments_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
