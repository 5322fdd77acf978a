// Executes an island's actions on the part of the model that a process holds.
//
// All processes of an island execute the same commands, in the same order in
// each lane. An error of one process is an error of all.
//
// Thread-compatible, but lanes may call Do() concurrently as IslandLoop allows.
// SetIdentity and SetRoutes are thread-safe.

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
#include "worker/core/save_replay.h"
#include "worker/data/local_data.h"
#include "worker/island/copy_once.h"
#include "worker/island/group/island_group.h"
#include "worker/island/group/part_command.h"
#include "worker/island/island_state.h"
#include "worker/island/local_checkpoint.h"
#include "worker/island/options.h"
#include "worker/island/outbox.h"
#include "worker/island/work_threads.h"
#include "worker/save/save_file.h"
#include "worker/save/save_set.h"

namespace atl::worker {

// The place where an island of `options` keeps its local checkpoints.
SavePlace MakeSavePlace(const RunIslandOptions& options);

// The rights that the machine's user gave the island.
LocalDataRights GetLocalDataRights(const RunIslandOptions& options);

struct PartResult {
  std::optional<SaveSummary> save;  // kLoadSave: the same in all processes.
  int64_t saved_step = 0;           // kRestoreSave.
  bool unfinished = false;          // kRestoreSave: call it again.
  bool repeats_steps = false;       // kRestoreSave: it took inner steps.
  StepResult step;                  // kTrain; of kRestoreSave only is_last.
  // kSave, and kContribute without in_background: f32 bytes of the gradients,
  // and bytes that this process wrote.
  int64_t byte_count = 0;
  int64_t saved_bytes = 0;
  // kSave, kContribute: AcknowledgedSeq() of a whole save; not set: no whole
  // save was written.
  std::optional<int64_t> acknowledged_seq;
  // Nats a token. kEvaluate: over `token_count`; kContribute: the first
  // fragment's mean training loss, if known.
  std::optional<double> loss;
  int64_t token_count = 0;
  // kPush, kPull, kEvaluate: payload bytes of all processes, and their time.
  int64_t moved_bytes = 0;
  absl::Duration moved_in;
};

class IslandPart {
 public:
  // Collective. Opens the data, creates the trainer; in an elastic run measures
  // its speed over two steps. `links` and its group must outlive the part.
  // INVALID_ARGUMENT, FAILED_PRECONDITION, NOT_FOUND, RESOURCE_EXHAUSTED: as
  // RunIsland.
  static absl::StatusOr<std::unique_ptr<IslandPart>> Create(
      const RunIslandOptions& options, const IslandLinks& links,
      const v1::Run& run);

  void SetIdentity(int64_t island_epoch, absl::string_view session_secret);
  void SetRoutes(const server::ShardRoutes& routes);
  // Adds the identity and the routes, for other processes.
  void AddSession(PartCommand& command) const;

  // Collective. `bounds` apply to the transfers of kPull, kPush and kEvaluate.
  // INTERNAL: kWait, kReportReady, kLeave and kFinish are not for a part.
  absl::Status Do(Lane lane, const PartCommand& command,
                  const server::CallBounds& bounds, PartResult& result);

  // Contributions whose outcome is needed, and the outcome of one. Not between
  // a kContribute and the end of its kSave.
  std::vector<v1::ContributionKey> Pending() const {
    return encoder_->Pending();
  }
  void Resolve(const v1::ContributionOutcome& outcome);

  bool streaming() const { return streaming_; }
  const RunLayout& layout() const { return state_->layout(); }
  std::string data_fingerprint() const {
    return state_->trainer().data_fingerprint();
  }
  v1::WeightUnit weight_unit() const { return state_->trainer().weight_unit(); }
  // IslandTrainer::Notify. Thread-safe.
  void Notify(const std::string& notice) { state_->trainer().Notify(notice); }
  std::string frozen_digest() const {
    return state_->trainer().frozen_digest();
  }
  // 0: not measured.
  double tokens_per_second() const { return tokens_per_second_; }
  server::TransferCounters counters() const { return parameters_->counters(); }
  // IslandTrainer::lost, and the same of another process. Thread-safe.
  absl::Status lost() const;
  absl::Duration trainer_silence() const { return state_->trainer().silence(); }
  // Makes a running kTrain return early, if its trainer can. Thread-safe.
  void InterruptTraining(bool at_once) {
    state_->trainer().Interrupt(at_once);
  }
  Outbox& outbox() { return outbox_; }

 private:
  IslandPart(const RunIslandOptions& options, const IslandLinks& links,
             const v1::Run& run);

  absl::Status DoHere(Lane lane, const PartCommand& command,
                      const server::CallBounds& bounds, PartResult& result);
  absl::Status Setup(const v1::Run& run);
  absl::StatusOr<std::unique_ptr<IslandTrainer>> MakeTrainer(
      const v1::Run& run);
  void ResetEncoder();
  absl::Status Agree(Lane lane, const absl::Status& status) const;

  absl::Status Train(const Action& action, PartResult& result);
  // Counts the steps of `step` for every fragment.
  void CountSteps(const StepResult& step);
  absl::Status Evaluate(const Action& action, const server::CallBounds& bounds,
                        PartResult& result);

  // island_part_save.cc.
  v1::ContributionInfo Describe(const Action& action,
                                const AnchoredFragment& at) const;
  absl::Status Contribute(const PartCommand& command, PartResult& result);
  absl::Status SaveTaken(const Action& action, PartResult& result);
  using SaveSpans = SaveArrays<absl::Span<const float>>;
  absl::Status AcquireForContribution(const Action& action);
  // The present state. A trainer that keeps its own state has saved it.
  absl::StatusOr<SaveSpans> SaveState(const Action& action);
  void Take(const PartCommand& command);
  void TakeForeseen();
  absl::Status Encode(Lane lane);
  absl::Status EncodeAndSave(Lane lane, const SaveSpans& arrays,
                             PartResult& result);
  absl::StatusOr<int64_t> Write(Lane lane,
                                const std::vector<Outbox::Item>& items,
                                const SaveSpans& arrays);
  absl::Status Apply(const Action& action);

  // island_part_restore.cc.
  absl::Status LoadSave(PartResult& result);
  absl::Status RestoreSave(PartResult& result);
  // Collective. Fresh optimizer state. The first time in a later run_epoch it
  // drops all that was made of the lost versions.
  absl::Status ResetOptimizer(const Action& action);
  absl::Status RestoreWhole(PartResult& result);
  absl::Status RestoreWholeHere();
  absl::Status RestoreLocal();
  absl::Status Repeat(const SaveReplay::Unit& unit, PartResult& result);
  absl::Status RepeatSteps(const SaveReplay::Unit& unit, PartResult& result);
  absl::Status RepeatAnswer(const SaveReplay::Unit& unit);
  absl::Status RepeatPush();
  absl::Status RepeatPushHere();

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
  // Pulls in all processes and checks the digests of all parts together.
  absl::Status PullTogether(Lane lane, const server::CallBounds& bounds,
                            const std::optional<Digest128>& expected, Call call,
                            PartResult& result);
  // Makes `call` in all processes and adds bytes and time to `result`. Returns
  // the first error. A push is idle only if it is idle in all processes.
  absl::Status Together(Lane lane, bool is_push, server::CallBounds bounds,
                        Call call, server::TransferOutcome& outcome,
                        PartResult& result);
  absl::Status CheckDigests(Lane lane, const server::TransferOutcome& outcome,
                            const std::optional<Digest128>& expected) const;

  const RunIslandOptions options_;
  const IslandLinks& links_;
  IslandGroup* const group_;  // Null: one process.
  const v1::RunSpec spec_;
  const bool streaming_;
  const bool has_own_trainer_;  // Our engine.
  WorkThreads training_threads_;  // For the training lane.
  WorkThreads save_threads_;  // For the save lane; they yield to other threads.
  std::unique_ptr<IslandState> state_;
  std::optional<ContributionEncoder> encoder_;
  std::unique_ptr<server::ParameterClient> parameters_;
  double tokens_per_second_ = 0;
  int64_t run_epoch_ = 0;  // That of what is held here.
  std::optional<LocalCheckpoint> checkpoint_;
  // While the local checkpoint is restored, after its whole save: the records
  // that follow it, and the record that is being repeated.
  std::optional<SaveReplay> replay_;
  std::optional<Save> record_;
  Outbox outbox_;
  // A contribution between its step and its local checkpoint. A retry neither
  // takes nor encodes it again. The training lane uses it and the encoder; from
  // a kContribute with in_background to the end of its kSave, the save lane
  // does, and IslandLoop keeps others out.
  struct TakenContribution {
    std::shared_ptr<EncodedContribution> contribution;
    LossSum losses;
    bool encoded = false;
  };
  struct Taken {
    int64_t seq = 0;
    std::vector<TakenContribution> contributions;
    SaveHeader header;
    bool is_whole = true;
    // A whole save with in_background has copies, which copy_ makes.
    SaveArrays<std::vector<float>> arrays;
    // Only a record has these.
    std::vector<AnswerValues<std::vector<float>>> answers;
    std::vector<ForeseenValues<std::vector<float>>> foreseen;
  };
  TakenContribution TakeOne(const Action& action, const AnchoredFragment& at);
  void WarnIfZero(const v1::ContributionInfo& info,
                  absl::Span<const float> gradient);
  Taken taken_;
  bool told_zero_ = false;  // By WarnIfZero, once an attempt.
  // Applied since the newest contribution, for the next record.
  std::vector<AnswerValues<std::vector<float>>> answers_;
  // Tokens since the previous contribution of each fragment, or the begin.
  std::vector<int64_t> token_counts_;
  std::vector<LossSum> losses_;  // The losses of the same steps.
  // Runs in the save lane, or in the training lane before it writes the arrays.
  CopyOnce copy_;

  mutable Mutex mutex_;
  int64_t island_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string session_secret_ ABSL_GUARDED_BY(mutex_);
  server::ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  int64_t route_count_ ABSL_GUARDED_BY(mutex_) = 0;  // SetRoutes() calls.
};

}  // namespace atl::worker
