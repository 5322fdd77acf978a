// Models that the engine's benchmarks train, those of the yardstick among them.
//
// Pure but for FillParameters. Thread-safe.

#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "worker/engine/trainer.h"

namespace atl::engine {

struct BenchmarkShape {
  std::string name;
  int64_t layers, channels, vocab, heads, batch, length;
};

// "tiny", "quick", "even" (a pipeline's stages are), "4m", "14m" or "124m"; null
// if it is none.
const BenchmarkShape* FindShape(absl::string_view name);

// A Llama of this shape, AdamW, f32; its head is its own.
TrainerOptions MakeOptions(const BenchmarkShape& shape, int threads);

// Fills trainer.parameters(), which holds all of the model, as training starts.
void FillParameters(Trainer& trainer, std::mt19937& random);

}  // namespace atl::engine
