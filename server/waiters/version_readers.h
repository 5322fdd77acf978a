// The streams that read versions of a shard, so that those of released ones can
// be told to start over when there are too many (server/core/released_reads.h),
// and those that read what a pin kept, so that they end with it.
//
// Thread-safe. Calls a stream with no lock of its own held but the stream's
// gate.

#ifndef SERVER_WAITERS_VERSION_READERS_H_
#define SERVER_WAITERS_VERSION_READERS_H_

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

// OUT_OF_RANGE, VERSION_RELEASED: the version `what`.
absl::Status VersionReleased(int32_t fragment, int64_t version,
                             absl::string_view what);

// Who reads.
struct Reader {
  std::string caller;
  std::shared_ptr<WaiterGate> gate;
};

// Outlives what Begin gives.
class VersionReaders {
 public:
  // A version is read while it lives.
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

  // To be called before the version is looked for: what is released after that
  // was found is then known to be read.
  Reading Begin(int32_t fragment, int64_t version, const Reader& reader);
  // The same of a kept contribution.
  Reading BeginKept(const ContributionKey& key, const Reader& reader);
  // Nobody finds the version any more: who reads it, or another one that is
  // released, may be told to end, with VERSION_RELEASED (OnDisplaced).
  void OnReleased(int32_t fragment, int64_t version);
  // Kept contributions were dropped, for nobody wants them any more or others
  // need their room: who reads one for which `kept` has an error is told to end
  // with that (OnDisplaced).
  void OnKeptDropped(
      absl::FunctionRef<absl::Status(const ContributionKey&)> kept);

 private:
  struct Fragment {
    ReleasedReads reads;
    // By number; `kept` of those that read no version.
    std::map<int64_t, std::shared_ptr<WaiterGate>> gates;
    std::map<int64_t, ContributionKey> kept;
  };

  void End(int32_t fragment, int64_t number);

  Mutex mutex_;
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, Fragment> fragments_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_WAITERS_VERSION_READERS_H_
