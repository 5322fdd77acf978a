// The batches of a run: the tokens that a step trains on, and those that an
// evaluation reads. Thread-compatible.
//
//   B  sequences a batch    T  tokens a sequence

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/data_set.h"
#include "worker/data/windows.h"

namespace atl::worker {

// Token ids, row-major, shape [n, T]: targets[i] follows inputs[i].
struct Batch {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
  // The windows of which it has the first ones; -1: none.
  int32_t data_shard = -1;
  int64_t position = -1;
};

class BatchReader {
 public:
  // Takes the shape from `spec`: inner.batch_size, inner.seed,
  // model.sequence_length, model.vocab_size, data. INVALID_ARGUMENT: a data
  // shard is too short for one window; the message gives a remedy.
  static absl::StatusOr<BatchReader> Create(std::unique_ptr<DataSet> data_set,
                                            const v1::RunSpec& spec);

  // Whether a read waits for data that comes by URL. If not, it returns
  // DataAwaited (worker/core/data_awaited.h) while some is missing, and a later
  // call with the same batch continues.
  enum class Wait { kNo, kYes };

  // Fills `batch` with windows [position, position + B) of `data_shard`.
  // INVALID_ARGUMENT: a token is not in the vocabulary, or no such data shard.
  // Others as DataSet::Read.
  absl::Status Read(int32_t data_shard, int64_t position, Batch& batch,
                    Wait wait = Wait::kYes) const;
  // Fills `batch`, empty at first, with the held-out windows of an evaluation:
  // evaluation.batch_count batches. It stays empty if too little is held out.
  absl::Status ReadEvaluation(Batch& batch, Wait wait = Wait::kYes) const;
  // Tells that an evaluation follows. Does not wait.
  void PrefetchEvaluation() const;

  const DataSet& data_set() const { return *data_set_; }

 private:
  BatchReader() = default;
  absl::Status Append(int64_t offset, Wait wait, Batch& batch) const;

  std::unique_ptr<DataSet> data_set_;
  std::vector<ShardOrder> orders_;  // By data shard.
  int64_t batch_size_ = 0;
  int64_t sequence_length_ = 0;
  int32_t vocab_size_ = 0;
  int64_t evaluation_window_count_ = 0;
};

}  // namespace atl::worker
