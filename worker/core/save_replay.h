// The order in which a restart repeats what followed a whole save: the inner
// steps, the answers at their steps, and the pushes, which are not made again.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/core/action.h"

namespace atl::worker {

// A record of a local checkpoint: a push, and the answers applied before it
// since the previous one.
struct SavedPush {
  SaveSummary summary;
  std::vector<AppliedAnswer> answers;
};

class SaveReplay {
 public:
  enum class Kind {
    kTrain,   // `step_count` steps, the first one `step` of the learning rate.
    kAnswer,  // answers[answer] of the record.
    kPush,    // The record's push: what it changed in the island.
    kDone,
  };
  struct Unit {
    Kind kind = Kind::kDone;
    size_t record = 0;
    size_t answer = 0;
    int64_t step = 0;
    int64_t step_count = 0;
    int64_t version = 0;  // Version of fragment 0.
    int32_t data_shard = 0;
    int64_t data_position = 0;
  };

  SaveReplay() = default;
  // From the state of `whole`. A step reads `batch_size` windows.
  SaveReplay(const SaveSummary& whole, std::vector<SavedPush> records,
             int64_t batch_size);

  // False if the records do not follow each other: they are not of one life.
  bool IsSound() const;

  // Steps done, by the clock of the learning rate.
  int64_t step() const { return clock_ + rate_offset_; }

  Unit Next() const;
  // The unit is done; of a kTrain `step_count` steps, at least 0.
  void OnDone(const Unit& unit, int64_t step_count);

 private:
  std::vector<SavedPush> records_;
  int64_t batch_size_ = 1;
  int64_t clock_ = 0;
  int64_t rate_offset_ = 0;
  int32_t data_shard_ = 0;
  int64_t data_position_ = 0;
  size_t record_ = 0;
  size_t answer_ = 0;
};

}  // namespace atl::worker
