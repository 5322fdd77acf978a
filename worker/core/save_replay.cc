#include "worker/core/save_replay.h"

#include <utility>

namespace atl::worker {

SaveReplay::SaveReplay(const SaveSummary& whole, std::vector<SavedPush> records,
                       int64_t batch_size)
    : records_(std::move(records)),
      batch_size_(batch_size),
      clock_(whole.clock),
      rate_offset_(whole.rate_offset),
      data_shard_(whole.data_shard),
      data_position_(whole.data_position) {}

bool SaveReplay::IsSound() const {
  int64_t clock = clock_;
  for (const SavedPush& record : records_) {
    for (const AppliedAnswer& answer : record.answers) {
      if (answer.clock < clock) return false;
      clock = answer.clock;
    }
    const SaveSummary& summary = record.summary;
    if (summary.clock < clock || summary.data_shard != data_shard_ ||
        summary.data_position !=
            data_position_ + (summary.clock - clock_) * batch_size_) {
      return false;
    }
    clock = summary.clock;
  }
  return true;
}

SaveReplay::Unit SaveReplay::Next() const {
  Unit unit;
  if (record_ == records_.size()) return unit;
  const SavedPush& record = records_[record_];
  const bool is_answer = answer_ < record.answers.size();
  const int64_t until =
      is_answer ? record.answers[answer_].clock : record.summary.clock;
  unit.record = record_;
  unit.answer = answer_;
  if (clock_ == until) {
    unit.kind = is_answer ? Kind::kAnswer : Kind::kPush;
    return unit;
  }
  unit.kind = Kind::kTrain;
  unit.step = step();
  unit.step_count = until - clock_;
  if (!record.summary.tracks.empty()) {
    unit.version = record.summary.tracks[0].local_version;
  }
  unit.data_shard = data_shard_;
  unit.data_position = data_position_;
  return unit;
}

void SaveReplay::OnDone(const Unit& unit, int64_t step_count) {
  switch (unit.kind) {
    case Kind::kTrain:
      clock_ += step_count;
      data_position_ += step_count * batch_size_;
      break;
    case Kind::kAnswer:
      ++answer_;
      break;
    case Kind::kPush:
      rate_offset_ = records_[record_].summary.rate_offset;
      ++record_;
      answer_ = 0;
      break;
    case Kind::kDone:
      break;
  }
}

}  // namespace atl::worker
