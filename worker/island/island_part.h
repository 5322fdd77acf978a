// What one process of an island does of the island's actions: on what it holds
// of the model. Alone it is the whole island's.
//
// Where there are more processes all do the same commands, each lane's in the
// same order, and an error of one is an error of all; "with all" of
// island_state.h and island_group.h holds for Do() as a whole.
//
// Thread-compatible, but each lane may do its own at the same time, as
// IslandLoop lets them; SetIdentity and SetRoutes may be called from any
// thread.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "base/sync/mutex.h"
#include "worker/core/contribution_encoder.h"
#include "worker/data/batch_reader.h"
#include "worker/island/copy_once.h"
#include "worker/island/group/island_group.h"
#include "worker/island/group/part_command.h"
#include "worker/island/island_state.h"
#include "worker/island/options.h"
#include "worker/island/outbox.h"
#include "worker/save/save_file.h"
#include "worker/save/save_set.h"

namespace atl::worker {

// What came of a command, besides its status.
struct PartResult {
  std::optional<SaveSummary> save;  // kLoadSave: of all processes alike.
  int64_t saved_step = 0;           // kRestoreSave.
  StepResult step;                  // kTrain.
  absl::Time begin, end;            // The same: when.
  // kContribute without `beside`, kSave: of the gradients, f32.
  int64_t byte_count = 0;
  std::optional<double> loss;  // kEvaluate: of `token_count`.
  int64_t token_count = 0;
  // kPush, kPull, kEvaluate: payload of all processes, and how long it took.
  int64_t moved_bytes = 0;
  absl::Duration moved_in;
};

class IslandPart {
 public:
  // Of `spec`, with all; opens the data, makes the trainer. `links` and its
  // group must outlive it. Where `measure_speed` is set two steps are timed.
  //
  // INVALID_ARGUMENT, FAILED_PRECONDITION, NOT_FOUND, RESOURCE_EXHAUSTED: as
  // RunIsland.
  static absl::StatusOr<std::unique_ptr<IslandPart>> Create(
      const RunIslandOptions& options, const IslandLinks& links,
      const v1::RunSpec& spec);

  void SetIdentity(int64_t island_epoch, absl::string_view session_secret);
  void SetRoutes(const server::ShardRoutes& routes);
  // What others of the island need to transfer: what was set above.
  void AddSession(PartCommand& command) const;

  // Does one of: kLoadSave, kRestoreSave, kResetOptimizer, kPull, kBeginRound,
  // kTrain, kContribute, kSave, kPush, kApply, kEvaluate.
  // `bounds`: of the transfers of kPull, kPush and kEvaluate.
  absl::Status Do(Lane lane, const PartCommand& command,
                  const server::CallBounds& bounds, PartResult& result);

  // Contributions whose outcome is wanted, and what became of one. Not while
  // one is taken and not saved.
  std::vector<v1::ContributionKey> Pending() const {
    return encoder_->Pending();
  }
  void Resolve(const v1::ContributionOutcome& outcome);

  int64_t restart_step_count() const { return state_->restart_step_count(); }
  int64_t optimizer_step_count() const {
    return state_->optimizer().step_count;
  }
  bool streaming() const { return streaming_; }
  const RunLayout& layout() const { return state_->layout(); }
  const std::string& data_fingerprint() const { return data_fingerprint_; }
  // 0: not measured.
  double tokens_per_second() const { return tokens_per_second_; }
  server::TransferCounters counters() const { return parameters_->counters(); }
  Outbox& outbox() { return outbox_; }

 private:
  IslandPart(const RunIslandOptions& options, const IslandLinks& links,
             const v1::RunSpec& spec);

  absl::Status DoHere(Lane lane, const PartCommand& command,
                      const server::CallBounds& bounds, PartResult& result);
  absl::Status Setup();
  absl::Status OpenData();
  absl::Status MeasureSpeed();
  // OK if it is OK for all.
  absl::Status Agree(Lane lane, const absl::Status& status) const;

  absl::Status Train(const Action& action, PartResult& result);
  absl::Status Evaluate(const Action& action, const server::CallBounds& bounds,
                        PartResult& result);

  // island_part_save.cc.
  SavePlace Place() const;
  // With `is_next`, of several processes: where it is until all have written
  // theirs.
  std::string OwnSavePath(bool is_next) const;
  absl::Status LoadSave(PartResult& result);
  // What each process of the island says, of which this one says `own`.
  absl::StatusOr<std::vector<std::string>> OfAllProcesses(
      const std::string& own);
  absl::Status RestoreSave(PartResult& result);
  absl::Status RestoreSaveHere();
  absl::Status RestoreLocal();
  absl::Status Contribute(const PartCommand& command, PartResult& result);
  absl::Status SaveTaken(const Action& action, PartResult& result);
  using SaveSpans = SaveArrays<absl::Span<const float>>;
  SaveSpans ArraysOfSave();
  void Take(const PartCommand& command);
  absl::Status Encode(Lane lane);
  absl::Status EncodeAndSave(Lane lane, const SaveSpans& arrays,
                             PartResult& result);
  absl::Status WriteSaveWith(Lane lane, const std::vector<Outbox::Item>& items,
                             const SaveSpans& arrays);

  // island_part_transfer.cc.
  absl::Status Pull(const Action& action, Lane lane,
                    const server::CallBounds& bounds, PartResult& result);
  absl::Status Push(const Action& action, Lane lane,
                    const server::CallBounds& bounds, PartResult& result);
  absl::Status PullForEvaluation(const Action& action,
                                 const server::CallBounds& bounds,
                                 PartResult& result);
  using Call = absl::FunctionRef<server::TransferOutcome(
      const server::CallBounds& bounds)>;
  // A pull of this process's part, while the others pull theirs; adds to
  // `result` what has moved.
  absl::Status PullTogether(Lane lane, const server::CallBounds& bounds,
                            const std::optional<Digest128>& expected, Call call,
                            PartResult& result);
  // The first error of all processes. `is_push`: not idle while one moves.
  absl::Status Together(Lane lane, bool is_push, server::CallBounds bounds,
                        Call call, server::TransferOutcome& outcome,
                        PartResult& result);
  absl::Status CheckDigests(Lane lane, const server::TransferOutcome& outcome,
                            const std::optional<Digest128>& expected) const;

  const RunIslandOptions options_;
  const IslandLinks& links_;
  IslandGroup* const group_;  // Null: alone.
  const v1::RunSpec spec_;
  const bool streaming_;
  std::unique_ptr<IslandState> state_;
  std::optional<ContributionEncoder> encoder_;
  std::optional<BatchReader> reader_;
  std::optional<Batch> evaluation_batch_;
  std::unique_ptr<server::ParameterClient> parameters_;
  std::string data_fingerprint_;
  double tokens_per_second_ = 0;
  std::optional<Save> save_;     // Read, until it is restored or out of date.
  bool others_removed_ = false;  // SAVEs of other numbers of processes.
  Outbox outbox_;
  // What is between its step and its SAVE: taken once and encoded once, however
  // often that fails. Of the training lane, but between a kContribute with
  // `beside` and the end of its kSave of that lane: IslandLoop has nothing else
  // use it then, nor the encoder.
  struct TakenContribution {
    std::shared_ptr<EncodedContribution> contribution;
    bool encoded = false;
  };
  struct Taken {
    int64_t seq = 0;
    std::vector<TakenContribution> contributions;
    SaveHeader header;
    // With `beside`: copies, for the trainer's own go on. Made by `copy_`.
    SaveArrays<std::vector<float>> arrays;
  };
  TakenContribution TakeOne(const Action& action, const AnchoredFragment& at);
  Taken taken_;
  // Fills taken_.arrays: in the save lane, or in the training lane if that is
  // to write what is copied before.
  CopyOnce copy_;
  Batch batch_;

  mutable Mutex mutex_;
  int64_t island_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string session_secret_ ABSL_GUARDED_BY(mutex_);
  server::ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  int64_t route_count_ ABSL_GUARDED_BY(mutex_) = 0;  // Times they were set.
};

}  // namespace atl::worker
