// The phases of an island's newest synchronizations, as it has reported them.
//
// Bounded: 256 synchronizations of 88 bytes. Times are kept to the microsecond.
// A copy shares them until one of the two changes, so another thread may read
// it at leisure.
//
// Pure. Thread-compatible.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"

namespace atl::coordinator {

class PhaseTable {
 public:
  static constexpr size_t kKeptMax = 256;

  PhaseTable() = default;
  PhaseTable(const PhaseTable& other) : kept_(other.Share()), shares_(true) {}
  PhaseTable(PhaseTable&&) = default;
  PhaseTable& operator=(PhaseTable other) {
    kept_ = std::move(other.kept_);
    shares_ = other.shares_;
    return *this;
  }

  // Returns false, and changes nothing, if the seq is known, or if kKeptMax
  // greater ones are. Requires: CheckProgress (spec/) accepts `sync`.
  bool Add(const v1::SyncPhases& sync);

  // The lower median duration of the pushes of the newest `count`
  // synchronizations; 0: none is known.
  absl::Duration MedianPush(size_t count) const;

  // In the order of start_time; empty if the seq is not known.
  std::vector<v1::PhaseTime> Find(int64_t seq) const;

 private:
  struct Span {
    int64_t start_us = 0;
    int64_t duration_us = -1;  // -1: not reported.
  };
  struct Sync {
    int64_t seq = 0;
    std::array<Span, 5> spans;  // As kPhases in the .cc file.
  };
  static bool IsBefore(const Sync& sync, int64_t seq) { return sync.seq < seq; }

  using Syncs = std::vector<Sync>;

  std::shared_ptr<Syncs> Share() const {
    shares_ = true;
    return kept_;
  }
  const Syncs& kept() const;

  std::shared_ptr<Syncs> kept_;  // By seq. Null: empty.
  mutable bool shares_ = false;  // A copy may read kept_: it never changes.
};

}  // namespace atl::coordinator
