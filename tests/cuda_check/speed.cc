#include "tests/cuda_check/speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/optimizer/inner_optimizer.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

void Wait(Ops& ops, const float* any) {
  float value = 0;
  ops.ToHost(sizeof(value), any, &value);
}

}  // namespace

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<SpeedShape> SpeedShapes() {
  SpeedShape small, large;
  small.name = "124m";
  small.batch = 16;
  small.config.vocab_size = 50304;
  small.config.hidden_size = 768;
  small.config.intermediate_size = 2048;
  small.config.layer_count = 12;
  small.config.head_count = small.config.kv_head_count = 12;
  small.config.sequence_length_max = 1024;
  small.config.tie_embeddings = true;
  large.name = "1b";
  large.batch = 4;
  large.config.vocab_size = 32000;
  large.config.hidden_size = 2048;
  large.config.intermediate_size = 5632;
  large.config.layer_count = 22;
  large.config.head_count = 32;
  large.config.kv_head_count = 4;
  large.config.sequence_length_max = 2048;
  return {small, large};
}

AttentionShape AttentionOf(const SpeedShape& shape) {
  return {.batch = shape.batch,
          .sequence_length = shape.config.sequence_length_max,
          .head_count = shape.config.head_count,
          .kv_head_count = shape.config.kv_head_count,
          .head_dim = shape.config.hidden_size / shape.config.head_count};
}

double CountOperations(const SpeedShape& shape, int64_t parameter_count) {
  const ModelConfig& c = shape.config;
  const double rows = static_cast<double>(shape.batch * c.sequence_length_max);
  if (!c.tie_embeddings) parameter_count -= c.vocab_size * c.hidden_size;
  return rows * (6.0 * static_cast<double>(parameter_count) +
                 12.0 * static_cast<double>(c.layer_count * c.hidden_size *
                                            c.sequence_length_max));
}

double DataSheetPeak(ComputeType compute) {
  return compute == ComputeType::kBf16 ? 989e12 : 67e12;
}

// Uniform where the layout wants normal: only speed matters.
std::vector<float> DrawParameters(const SpeedShape& shape) {
  const ParameterLayout layout = MakeParameterLayout(shape.config);
  std::vector<float> values(layout.element_count);
  std::minstd_rand random(2);
  for (const ParameterSpec& spec : layout.parameters) {
    const float scale = static_cast<float>(spec.init_value);
    for (int64_t i = 0; i < spec.element_count; ++i) {
      const float unit = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      values[spec.offset + i] =
          spec.init == ParameterInit::kConstant ? scale : scale * unit;
    }
  }
  return values;
}

absl::Status MeasureSpeed(const SpeedShape& shape, ComputeType compute,
                          int steps, const std::vector<float>& parameter_values,
                          Ops& ops, Report& report) {
  const ModelConfig& config = shape.config;
  const int64_t length = config.sequence_length_max;
  const int64_t rows = shape.batch * length;
  ASSIGN_OR_RETURN(auto decoder, Decoder<float>::Create(config, rows, ops));
  const ParameterLayout& layout = decoder->layout();
  ASSIGN_OR_RETURN(auto optimizer,
                   InnerOptimizer::Create(OptimizerOptions(), layout, ops));
  float *parameters = nullptr, *gradients = nullptr;
  const auto take = [&](Arena& arena) {
    parameters = arena.Take<float>(layout.element_count);
    gradients = arena.Take<float>(layout.element_count);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  ops.FromHost(parameter_values.size() * sizeof(float), parameter_values.data(),
               parameters);
  std::minstd_rand random(3);
  std::vector<int32_t> inputs(rows), targets(rows);
  for (int32_t& t : inputs) {
    t = static_cast<int32_t>(random() %
                             static_cast<uint64_t>(config.vocab_size));
  }
  for (int32_t& t : targets) {
    t = static_cast<int32_t>(random() %
                             static_cast<uint64_t>(config.vocab_size));
  }
  const TokenBatch batch = {.batch = shape.batch,
                            .sequence_length = length,
                            .inputs = inputs.data(),
                            .targets = targets.data()};
  std::vector<double> seconds;
  double loss = 0;
  const auto queue_step = [&](const TokenBatch& fetched) {
    optimizer->BeginQueued(1e-4);
    ops.Replay(0, [&] {
      decoder->QueueForwardBackward(parameters, fetched, gradients);
      optimizer->QueueStep(rows, decoder->losses(), gradients, parameters);
    });
    return optimizer->EndQueued().loss / static_cast<double>(rows);
  };
  // As in the trainer: called, recorded, then replayed.
  constexpr int kFirstSteps = 3;
  for (int step = 0; step < steps + kFirstSteps; ++step) {
    const double start = Seconds();
    if (ops.replays()) {
      loss = queue_step(decoder->Fetch(batch));
    } else {
      loss = decoder->ForwardBackward(parameters, batch, gradients);
      optimizer->Step(1e-4, gradients, parameters);
    }
    Wait(ops, parameters);
    RETURN_IF_ERROR(ops.status());
    const std::string note = ops.TakeNote();
    if (!note.empty()) return absl::FailedPreconditionError(note);
    if (!std::isfinite(loss)) {
      return absl::InternalError(absl::StrCat("the loss is ", loss));
    }
    if (step >= kFirstSteps) seconds.push_back(Seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double speed = CountOperations(shape, layout.element_count) / median;
  report.Measure(
      "training",
      {{"case", JsonString(shape.name)},
       {"dtype", compute == ComputeType::kBf16 ? "\"bf16\"" : "\"f32\""},
       {"graphs", ops.replays() ? "true" : "false"},
       {"parameters", absl::StrCat(layout.element_count)},
       {"tokens_per_step", absl::StrCat(rows)},
       {"seconds_per_step", absl::StrCat(median)},
       {"tokens_per_second", absl::StrCat(static_cast<double>(rows) / median)},
       {"tflops", absl::StrCat(speed / 1e12)},
       {"mfu", absl::StrCat(speed / DataSheetPeak(compute))},
       {"loss", absl::StrCat(loss)}});
  return absl::OkStatus();
}

}  // namespace atl::engine::check
