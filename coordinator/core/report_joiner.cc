#include "coordinator/core/report_joiner.h"

#include <utility>

namespace atl::coordinator {

void ReportJoiner::Forget() {
  part_count_ = 0;
  byte_count_ = 0;
  report_ = v1::ShardReport();  // Clear would keep the memory.
}

std::optional<v1::ShardReport> ReportJoiner::Add(int64_t report_seq,
                                                 v1::ShardReport part) {
  if (part.part() == 0) {
    Forget();
    if (part.parts_left() <= 0) return part;
  }
  const bool follows =
      part.part() == part_count_ &&
      (part_count_ == 0 ||
       (report_seq == report_seq_ && part.run_id() == report_.run_id() &&
        part.shard() == report_.shard()));
  const size_t bytes = part.SpaceUsedLong();
  if (!follows || bytes > kReportBytesMax - byte_count_) {
    Forget();
    return std::nullopt;
  }
  report_seq_ = report_seq;
  ++part_count_;
  byte_count_ += bytes;
  const bool is_last = part.parts_left() <= 0;
  // Entries move; MergeFrom would copy them.
  const auto move = [](auto& from, auto& to) {
    if (to.empty()) return to.Swap(&from);
    for (auto& entry : from) *to.Add() = std::move(entry);
    from.Clear();
  };
  move(*part.mutable_stored(), *report_.mutable_stored());
  move(*part.mutable_refused(), *report_.mutable_refused());
  move(*part.mutable_gone(), *report_.mutable_gone());
  move(*part.mutable_statistics(), *report_.mutable_statistics());
  report_.MergeFrom(part);
  report_.clear_part();
  report_.clear_parts_left();
  if (!is_last) return std::nullopt;
  part_count_ = 0;
  byte_count_ = 0;
  return std::exchange(report_, v1::ShardReport());
}

}  // namespace atl::coordinator
