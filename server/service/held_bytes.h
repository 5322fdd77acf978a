// Bytes of contributions that wait at level ISLAND to be merged, of a whole
// server, and their bound.
//
// Who holds (a contribution) may have as much as is left free, at most: one
// alone half of the bound, two a third each, and whoever comes next finds room.
// What has to be taken all the same, so that a round goes on, is taken beyond
// the bound. What nobody goes on with for now is held until somebody finds no
// room.
//
// Thread-safe.

#ifndef SERVER_SERVICE_HELD_BYTES_H_
#define SERVER_SERVICE_HELD_BYTES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::server {

class HeldBytes : public std::enable_shared_from_this<HeldBytes> {
 public:
  // Bytes that are held while it lives.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : held_(std::move(other.held_)),
          holder_(other.holder_),
          bytes_(other.bytes_),
          is_beyond_(other.is_beyond_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(held_, other.held_);
      std::swap(holder_, other.holder_);
      std::swap(bytes_, other.bytes_);
      std::swap(is_beyond_, other.is_beyond_);
      return *this;
    }
    ~Hold() {
      if (held_ != nullptr) held_->Give(holder_, bytes_, is_beyond_);
    }

    // The bound did not allow it.
    bool is_beyond() const { return is_beyond_; }

   private:
    friend class HeldBytes;
    Hold(std::shared_ptr<HeldBytes> held, const void* holder, int64_t bytes,
         bool is_beyond)
        : held_(std::move(held)),
          holder_(holder),
          bytes_(bytes),
          is_beyond_(is_beyond) {}

    std::shared_ptr<HeldBytes> held_;
    const void* holder_;
    int64_t bytes_;
    bool is_beyond_;
  };

  // At most `bytes_max` wait, and at most `slice_bytes_max` of them in the
  // slices that gRPC received them in: it counts these, and ends calls when
  // there are too many.
  HeldBytes(int64_t bytes_max, int64_t slice_bytes_max)
      : bytes_max_(bytes_max), slice_bytes_max_(slice_bytes_max) {}

  // `bytes` (> 0) for `holder`; none if the bound does not allow it.
  // What is abandoned makes room for it: to be called with no lock held.
  std::optional<Hold> Take(const void* holder, int64_t bytes) {
    std::optional<Hold> hold = TakeIfRoom(holder, bytes);
    if (hold.has_value()) return hold;
    std::map<const void*, std::function<void()>> abandoned;
    {
      MutexLock lock(&mutex_);
      abandoned.swap(abandoned_);
    }
    if (abandoned.empty()) return hold;
    for (const auto& [other, give_up] : abandoned) give_up();
    return TakeIfRoom(holder, bytes);
  }
  // The same, whatever the bound says.
  Hold TakeBeyond(const void* holder, int64_t bytes) {
    {
      MutexLock lock(&mutex_);
      Count(holder, bytes);
      beyond_bytes_ += bytes;
    }
    return Hold(shared_from_this(), holder, bytes, /*is_beyond=*/true);
  }
  // Nobody goes on with what `holder` holds: `give_up`, called once, from any
  // thread, when somebody finds no room, lets go of it if that is still so.
  // Nothing, if it holds nothing.
  void Abandon(const void* holder, std::function<void()> give_up) {
    MutexLock lock(&mutex_);
    if (by_holder_.count(holder) == 0) return;
    abandoned_[holder].swap(give_up);
  }

  // Of what is held, in slices. False, and nothing is added, if there would be
  // too many.
  bool AddSliceBytes(int64_t bytes) {
    MutexLock lock(&mutex_);
    if (slice_bytes_ + bytes > slice_bytes_max_) return false;
    slice_bytes_ += bytes;
    return true;
  }
  void RemoveSliceBytes(int64_t bytes) {
    MutexLock lock(&mutex_);
    slice_bytes_ -= bytes;
  }

  int64_t bytes() const {
    MutexLock lock(&mutex_);
    return bytes_;
  }
  // Of them, beyond the bound.
  int64_t beyond_bytes() const {
    MutexLock lock(&mutex_);
    return beyond_bytes_;
  }

 private:
  std::optional<Hold> TakeIfRoom(const void* holder, int64_t bytes) {
    {
      MutexLock lock(&mutex_);
      const auto own = by_holder_.find(holder);
      const int64_t own_bytes = own == by_holder_.end() ? 0 : own->second;
      if (own_bytes + bytes > bytes_max_ - bytes_) return std::nullopt;
      Count(holder, bytes);
    }
    return Hold(shared_from_this(), holder, bytes, /*is_beyond=*/false);
  }
  void Count(const void* holder, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_ += bytes;
    by_holder_[holder] += bytes;
  }
  void Give(const void* holder, int64_t bytes, bool is_beyond) {
    std::function<void()> forgotten;  // Ends after the lock.
    MutexLock lock(&mutex_);
    bytes_ -= bytes;
    if (is_beyond) beyond_bytes_ -= bytes;
    const auto own = by_holder_.find(holder);
    if ((own->second -= bytes) > 0) return;
    by_holder_.erase(own);
    const auto abandoned = abandoned_.find(holder);
    if (abandoned == abandoned_.end()) return;
    forgotten.swap(abandoned->second);
    abandoned_.erase(abandoned);
  }

  const int64_t bytes_max_;
  const int64_t slice_bytes_max_;
  mutable Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t beyond_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const void*, int64_t> by_holder_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, std::function<void()>> abandoned_
      ABSL_GUARDED_BY(mutex_);
  int64_t slice_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_HELD_BYTES_H_
