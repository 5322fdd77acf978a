#include "worker/island/engine_trainer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/object_store/object_url.h"
#include "base/obs/log.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "worker/data/data_set.h"
#include "worker/data/windows.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {

absl::StatusOr<std::unique_ptr<EngineTrainer>> EngineTrainer::Create(
    const v1::RunSpec& spec, const EngineTrainerOptions& options) {
  auto trainer =
      std::unique_ptr<EngineTrainer>(new EngineTrainer(spec, options));
  ASSIGN_OR_RETURN(const engine::TrainerOptions trainer_options,
                   MakeTrainerOptions(spec, options.thread_count));
  ASSIGN_OR_RETURN(trainer->trainer_, options.make_trainer(trainer_options));
  RETURN_IF_ERROR(trainer->InitFragments());
  RETURN_IF_ERROR(trainer->OpenReader());
  return trainer;
}

absl::Status EngineTrainer::InitFragments() {
  ASSIGN_OR_RETURN(const RunLayout layout, RunLayout::Create(spec_.layout()));
  const int32_t count = layout.fragment_count();
  elements_.resize(count);
  places_.assign(count, Place::kBoth);
  for (int32_t f = 0; f < count; ++f) {
    all_fragments_.push_back(f);
    for (const int32_t i : layout.fragment_tensors(f)) {
      const TensorPlace& tensor = layout.tensors()[i];
      elements_[f].push_back(
          {.begin = tensor.model_offset,
           .end = tensor.model_offset + tensor.element_count});
    }
  }
  return absl::OkStatus();
}

absl::Status EngineTrainer::OpenReader() {
  ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data,
                   OpenData(spec_.data(), options_.data));
  if (options_.check_fingerprint && !spec_.data().fingerprint().empty()) {
    ASSIGN_OR_RETURN(fingerprint_, data->Fingerprint());
    if (fingerprint_ != spec_.data().fingerprint()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the data at \"",
          options_.data.path.empty() ? RedactUrl(spec_.data().url())
                                     : options_.data.path,
          "\" is not the run's data: its fingerprint is ", fingerprint_,
          ", the run's is ", spec_.data().fingerprint(),
          "; copy the run's data to this machine and pass its path with "
          "--data"));
    }
  }
  ASSIGN_OR_RETURN(BatchReader reader,
                   BatchReader::Create(std::move(data), spec_));
  reader_.emplace(std::move(reader));
  return absl::OkStatus();
}

std::vector<IndexRange> EngineTrainer::held() const {
  std::vector<IndexRange> spans;
  for (const engine::ParameterSpan& span : trainer_->held()) {
    spans.push_back({span.begin, span.end});
  }
  return spans;
}

// The first step warms up memory and kernels, the second is timed. Parameters
// are pulled later. Ignores errors: the first round repeats and reports them.
// Reads no data: which file the island starts with is not known yet.
absl::StatusOr<double> EngineTrainer::MeasureSpeed() {
  double tokens_per_second = 0;
  for (int i = 0; i < 2; ++i) {
    MakeUpBatch();
    const absl::StatusOr<StepResult> result = Step({});
    if (!result.ok()) break;
    if (i == 0) continue;
    tokens_per_second =
        static_cast<double>(result->token_count) /
        std::max(1e-9, absl::ToDoubleSeconds(result->end - result->begin));
  }
  RETURN_IF_ERROR(Reset());
  return tokens_per_second;
}

void EngineTrainer::MakeUpBatch() {
  const int64_t count = int64_t{spec_.inner().batch_size()} *
                        spec_.model().sequence_length();
  batch_ = {};
  batch_.inputs.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    batch_.inputs[i] = static_cast<int32_t>(
        CounterHash(0, i) % static_cast<uint64_t>(spec_.model().vocab_size()));
  }
  batch_.targets = batch_.inputs;
}

void EngineTrainer::set_before_write(std::function<void()> before_write) {
  before_write_ = std::move(before_write);
  trainer_calls_it_ = trainer_->set_before_write(before_write_);
}

std::vector<engine::ParameterSpan> EngineTrainer::ElementsAt(
    Place place, absl::Span<const int32_t> fragments) const {
  std::vector<engine::ParameterSpan> elements;
  for (const int32_t f : fragments) {
    if (places_[f] != place) continue;
    elements.insert(elements.end(), elements_[f].begin(), elements_[f].end());
  }
  absl::c_sort(elements,
               [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return elements;
}

absl::Status EngineTrainer::Scatter() {
  engine::Trainer::Movement what = {
      .parameters = ElementsAt(Place::kHere, all_fragments_),
      .moments = moments_ == Place::kHere};
  if (!what.moments && what.parameters->empty()) return absl::OkStatus();
  RETURN_IF_ERROR(trainer_->Scatter(what));
  for (Place& place : places_) {
    if (place == Place::kHere) place = Place::kBoth;
  }
  if (what.moments) moments_ = Place::kBoth;
  return absl::OkStatus();
}

// After a step the trainer's spans may be empty, also those to be written.
absl::Status EngineTrainer::Acquire(absl::Span<const int32_t> fragments,
                                    LocalAccess access) {
  before_write_();
  engine::Trainer::Movement what = {
      .parameters = std::vector<engine::ParameterSpan>(), .moments = false};
  if (access == LocalAccess::kRead) {
    what.parameters = ElementsAt(Place::kRanks, fragments);
  }
  RETURN_IF_ERROR(trainer_->Gather(what));
  if (access == LocalAccess::kReplace) return absl::OkStatus();
  for (const int32_t f : fragments) {
    if (places_[f] == Place::kRanks) places_[f] = Place::kBoth;
  }
  return absl::OkStatus();
}

void EngineTrainer::MarkWritten(int32_t fragment) {
  places_[fragment] = Place::kHere;
}

absl::Span<float> EngineTrainer::Local(int32_t fragment,
                                       const HeldPiece& piece) {
  CHECK(!trainer_->parameters().empty()) << "Local() without Acquire()";
  return trainer_->parameters().subspan(piece.held_offset,
                                        piece.element_count);
}

absl::Span<const float> EngineTrainer::LocalInOrder() {
  CHECK(absl::c_count(places_, Place::kRanks) == 0)
      << "LocalInOrder() without Acquire()";
  return trainer_->parameters();
}

absl::StatusOr<StepResult> EngineTrainer::Train(const StepRequest& request) {
  RETURN_IF_ERROR(options_.agree(reader_->Read(
      request.data_shard, request.data_position, batch_, options_.wait)));
  // After the first file to train on, which is needed earlier.
  if (!has_prefetched_ && spec_.evaluation().every_round_count() > 0) {
    reader_->PrefetchEvaluation();
  }
  has_prefetched_ = true;
  return Step(request);
}

absl::StatusOr<StepResult> EngineTrainer::Step(const StepRequest& request) {
  StepResult result;
  result.begin = absl::Now();
  if (!trainer_calls_it_) before_write_();
  RETURN_IF_ERROR(Scatter());
  // Also if it fails: Step may have released the arrays here before.
  absl::c_fill(places_, Place::kRanks);
  moments_ = Place::kRanks;
  ASSIGN_OR_RETURN(result.loss,
                   trainer_->Step(batch_.inputs, batch_.targets, request.step,
                                  request.learning_rate_factor));
  result.gradient_norm = trainer_->gradient_norm();
  result.token_count = static_cast<int64_t>(batch_.inputs.size());
  result.end = absl::Now();
  return result;
}

absl::StatusOr<bool> EngineTrainer::CanEvaluate() {
  absl::Status read;
  if (!has_evaluation_batch_) {
    read = reader_->ReadEvaluation(evaluation_batch_, options_.wait);
    has_evaluation_batch_ = read.ok();
  }
  RETURN_IF_ERROR(options_.agree(read));
  if (!evaluation_batch_.inputs.empty()) return true;
  LOG(WARNING) << "the evaluation is skipped: the held-out data is shorter "
               << "than one window; raise data.validation_fraction";
  return false;
}

absl::StatusOr<EvaluationResult> EngineTrainer::Evaluate(int64_t version) {
  RETURN_IF_ERROR(Scatter());
  EvaluationResult result;
  ASSIGN_OR_RETURN(result.loss,
                   trainer_->EvaluateLoss(evaluation_batch_.inputs,
                                          evaluation_batch_.targets));
  result.token_count = static_cast<int64_t>(evaluation_batch_.inputs.size());
  return result;
}

absl::StatusOr<TrainerState> EngineTrainer::Save(const std::string& save_id) {
  if (moments_ == Place::kRanks) {
    before_write_();
    RETURN_IF_ERROR(trainer_->Gather(
        {.parameters = std::vector<engine::ParameterSpan>(), .moments = true}));
    moments_ = Place::kBoth;
  }
  const engine::OptimizerState state = trainer_->optimizer_state();
  return TrainerState{.first_moment = state.first_moment,
                      .second_moment = state.second_moment,
                      .step_count = state.step_count};
}

absl::Status EngineTrainer::Load(const TrainerState& state) {
  const engine::OptimizerState to = trainer_->optimizer_state();
  if (!state.save_id.empty() ||
      to.first_moment.size() != state.first_moment.size() ||
      to.second_moment.size() != state.second_moment.size()) {
    return absl::DataLossError(
        "the local checkpoint is of another inner optimizer");
  }
  absl::c_copy(state.first_moment, to.first_moment.begin());
  absl::c_copy(state.second_moment, to.second_moment.begin());
  moments_ = Place::kHere;
  trainer_->set_optimizer_step_count(state.step_count);
  return absl::OkStatus();
}

absl::Status EngineTrainer::Reset() {
  before_write_();
  // On both sides.
  trainer_->ResetOptimizer();
  moments_ = Place::kBoth;
  return absl::OkStatus();
}

}  // namespace atl::worker
