// Models that the engine's benchmarks train.
//
// Pure except FillParameters. Thread-safe.

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

// Finds "tiny", "quick", "even" (equal pipeline stages), "4m", "14m" or "124m";
// null for another name.
const BenchmarkShape* FindShape(absl::string_view name);

// A Llama of this shape with an untied head, AdamW, f32.
TrainerOptions MakeOptions(const BenchmarkShape& shape, int threads);

// Fills trainer.parameters(), which holds the whole model, with initial values.
void FillParameters(Trainer& trainer, std::mt19937& random);

}  // namespace atl::engine
