#include "worker/data/batch_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status/status_macros.h"

namespace atl::worker {

absl::StatusOr<BatchReader> BatchReader::Create(
    std::unique_ptr<DataSet> data_set, const v1::RunSpec& spec) {
  BatchReader reader;
  reader.batch_size_ = spec.inner().batch_size();
  reader.sequence_length_ = spec.model().sequence_length();
  reader.vocab_size_ = spec.model().vocab_size();
  reader.evaluation_window_count_ =
      int64_t{spec.evaluation().batch_count()} * spec.inner().batch_size();
  if (reader.batch_size_ < 1) {
    return absl::InvalidArgumentError("batch_size must be at least 1");
  }
  for (int32_t shard = 0; shard < spec.data().data_shard_count(); ++shard) {
    ASSIGN_OR_RETURN(ShardOrder order,
                     ShardOrder::Create(spec.inner().seed(),
                                        data_set->window_groups(shard),
                                        reader.sequence_length_));
    reader.orders_.push_back(std::move(order));
  }
  reader.data_set_ = std::move(data_set);
  return reader;
}

absl::Status BatchReader::Append(int64_t offset, Wait wait,
                                 Batch& batch) const {
  std::vector<int32_t> window(sequence_length_ + 1);
  if (wait == Wait::kNo) {
    RETURN_IF_ERROR(data_set_->Ready(offset, sequence_length_ + 1));
  }
  RETURN_IF_ERROR(data_set_->Read(offset, absl::MakeSpan(window)));
  for (const int32_t token : window) {
    if (token >= vocab_size_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the data has token ", token, ", but the model's vocabulary ends at ",
          vocab_size_ - 1, ": use data that was made for this model"));
    }
  }
  batch.inputs.insert(batch.inputs.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
  return absl::OkStatus();
}

absl::Status BatchReader::Read(int32_t data_shard, int64_t position,
                               Batch& batch, Wait wait) const {
  if (data_shard < 0 || data_shard >= static_cast<int32_t>(orders_.size()) ||
      position < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no window ", position, " of data shard ",
                     data_shard, " in this run"));
  }
  if (batch.data_shard != data_shard || batch.position != position) {
    batch = {.data_shard = data_shard, .position = position};
  }
  const auto done =
      static_cast<int64_t>(batch.inputs.size()) / sequence_length_;
  for (int64_t i = done; i < batch_size_; ++i) {
    RETURN_IF_ERROR(
        Append(orders_[data_shard].Offset(position + i), wait, batch));
  }
  return absl::OkStatus();
}

absl::Status BatchReader::ReadEvaluation(Batch& batch, Wait wait) const {
  const TokenRange held_out = data_set_->validation();
  const std::vector<int64_t> offsets = EvaluationOffsets(
      held_out.size(), sequence_length_, evaluation_window_count_);
  const auto done = static_cast<size_t>(batch.inputs.size() / sequence_length_);
  for (size_t i = done; i < offsets.size(); ++i) {
    RETURN_IF_ERROR(Append(held_out.begin + offsets[i], wait, batch));
  }
  return absl::OkStatus();
}

void BatchReader::PrefetchEvaluation() const {
  data_set_->Prefetch(data_set_->validation().begin);
}

}  // namespace atl::worker
