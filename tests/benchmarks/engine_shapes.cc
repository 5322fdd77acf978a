#include "tests/benchmarks/engine_shapes.h"

namespace atl::engine {

const BenchmarkShape* FindShape(absl::string_view name) {
  static const BenchmarkShape kShapes[] = {
      {"tiny", 4, 32, 64, 4, 8, 32},
      {"quick", 4, 128, 256, 4, 8, 128},
      {"even", 8, 128, 64, 4, 8, 128},
      {"4m", 4, 256, 4096, 4, 8, 256},
      {"14m", 6, 384, 8192, 6, 8, 256},
      {"124m", 12, 768, 50304, 12, 4, 256},
  };
  for (const BenchmarkShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

TrainerOptions MakeOptions(const BenchmarkShape& shape, int threads) {
  TrainerOptions options;
  options.model.vocab_size = shape.vocab;
  options.model.hidden_size = shape.channels;
  options.model.intermediate_size = (8 * shape.channels / 3 + 7) / 8 * 8;
  options.model.layer_count = shape.layers;
  options.model.head_count = options.model.kv_head_count = shape.heads;
  options.model.sequence_length_max = shape.length;
  options.schedule.peak = 1e-4;
  options.batch_size = shape.batch;
  options.sequence_length = shape.length;
  options.thread_count = threads;
  return options;
}

void FillParameters(Trainer& trainer, std::mt19937& random) {
  for (const ParameterSpec& spec : trainer.layout().parameters) {
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (int64_t i = 0; i < spec.element_count; ++i) {
      trainer.parameters()[spec.offset + i] =
          spec.init == ParameterInit::kConstant
              ? static_cast<float>(spec.init_value)
              : normal(random);
    }
  }
}

}  // namespace atl::engine
