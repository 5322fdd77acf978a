// Training speed of the engine: tokens a second and the share of oneDNN's f32
// peak taken in the same run.
//
// usage: engine [--json] [--shapes=quick,4m,14m,124m] [--threads=1,2]
//               [--steps=N]
//
// A step is forward, backward, clipping and AdamW on random tokens. For each
// shape and thread count the median of N steps (default 5, more for small
// shapes) counts. Operations a step are 6 P R + 12 L C T R for P parameters
// (a tied head counted once) and R tokens. The peak is the best of several runs
// of a 2048 x 2048 x 2048 product with as many threads, right before and after.
// With --json each result is one JSON object a line and nothing else is written
// to standard output.

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "oneapi/dnnl/dnnl.h"
#include "worker/engine/trainer.h"

namespace atl::engine {
namespace {

struct Shape {
  std::string name;
  int64_t layers, channels, vocab, heads, batch, length;
};

const Shape kShapes[] = {
    {"quick", 4, 128, 256, 4, 8, 128},
    {"4m", 4, 256, 4096, 4, 8, 256},
    {"14m", 6, 384, 8192, 6, 8, 256},
    {"124m", 12, 768, 50304, 12, 4, 256},
};

struct Arguments {
  bool json = false;
  int steps = 0;  // 0: by the size of the shape.
  std::vector<std::string> shapes = {"quick", "4m", "14m", "124m"};
  std::vector<int> threads = {1, 2};
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Operations a second of the fastest of several products with `threads`
// threads of oneDNN's own. Runs in a thread of its own, for the thread count is
// set a thread.
double PeakFlops(int threads) {
  double best = 0;
  std::thread([&] {
    constexpr int64_t kSize = 2048;
    omp_set_num_threads(threads);
    std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 0.25f),
        c(kSize * kSize);
    for (int run = 0; run < 8; ++run) {
      const double start = Seconds();
      dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0f, a.data(), kSize, b.data(),
                 kSize, 0.0f, c.data(), kSize);
      best = std::max(best, 2.0 * kSize * kSize * kSize / (Seconds() - start));
    }
  }).join();
  return best;
}

TrainerOptions OptionsOf(const Shape& shape, int threads) {
  TrainerOptions options;
  options.model.vocab_size = shape.vocab;
  options.model.hidden_size = shape.channels;
  options.model.intermediate_size = (8 * shape.channels / 3 + 7) / 8 * 8;
  options.model.layer_count = shape.layers;
  options.model.head_count = options.model.kv_head_count = shape.heads;
  options.model.sequence_length_max = shape.length;
  options.model.tie_embeddings = true;
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

// Median seconds a step, after two to warm up; negative if the trainer fails.
double SecondsAStep(Trainer& trainer, const Shape& shape, int steps,
                    std::mt19937& random) {
  std::uniform_int_distribution<int32_t> token(
      0, static_cast<int32_t>(shape.vocab) - 1);
  std::vector<int32_t> inputs(shape.batch * shape.length);
  std::vector<int32_t> targets(inputs.size());
  for (int32_t& t : inputs) t = token(random);
  for (int32_t& t : targets) t = token(random);
  std::vector<double> seconds;
  for (int step = 0; step < steps + 2; ++step) {
    const double start = Seconds();
    const auto loss = trainer.Step(inputs, targets, step);
    if (!loss.ok()) {
      std::fprintf(stderr, "step: %s\n", loss.status().ToString().c_str());
      return -1;
    }
    if (step >= 2) seconds.push_back(Seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

bool RunCase(const Shape& shape, int threads, const Arguments& arguments) {
  auto trainer = Trainer::Create(OptionsOf(shape, threads));
  if (!trainer.ok()) {
    std::fprintf(stderr, "%s: %s\n", shape.name.c_str(),
                 trainer.status().ToString().c_str());
    return false;
  }
  std::mt19937 random(1);
  FillParameters(**trainer, random);
  double peak = PeakFlops(threads);
  const double rows = static_cast<double>(shape.batch * shape.length);
  const double parameters =
      static_cast<double>((*trainer)->layout().element_count);
  const double flops =
      rows * (6.0 * parameters +
              12.0 * static_cast<double>(shape.layers * shape.channels *
                                         shape.length));
  const int steps = arguments.steps > 0
                        ? arguments.steps
                        : std::clamp(static_cast<int>(1e12 / flops), 5, 50);
  const double seconds = SecondsAStep(**trainer, shape, steps, random);
  if (seconds <= 0) return false;
  peak = std::max(peak, PeakFlops(threads));
  const double share = flops / seconds / peak;
  if (arguments.json) {
    std::printf(
        "{\"case\": \"%s\", \"dtype\": \"f32\", \"threads\": %d, "
        "\"tokens_per_second\": %.1f, \"peak_share\": %.4f}\n",
        shape.name.c_str(), threads, rows / seconds, share);
  } else {
    std::printf(
        "%-6s %8.2f M parameters, %d threads: %9.1f tokens/s, "
        "%6.1f of %6.1f GFLOP/s (%.2f)\n",
        shape.name.c_str(), parameters / 1e6, threads, rows / seconds,
        flops / seconds / 1e9, peak / 1e9, share);
  }
  std::fflush(stdout);
  return true;
}

bool ParseNumber(absl::string_view text, int* number) {
  return absl::SimpleAtoi(text, number) && *number >= 1 && *number <= 256;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--json") {
      arguments->json = true;
    } else if (absl::ConsumePrefix(&argument, "--shapes=")) {
      arguments->shapes = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "--steps=")) {
      if (!ParseNumber(argument, &arguments->steps)) return false;
    } else if (absl::ConsumePrefix(&argument, "--threads=")) {
      arguments->threads.clear();
      for (absl::string_view text : absl::StrSplit(argument, ',')) {
        int number = 0;
        if (!ParseNumber(text, &number)) return false;
        arguments->threads.push_back(number);
      }
    } else {
      return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: engine [--json] [--shapes=quick,4m,14m,124m] "
                 "[--threads=1,2] [--steps=N]\n");
    return 2;
  }
  for (const std::string& name : arguments.shapes) {
    const Shape* shape =
        std::find_if(std::begin(kShapes), std::end(kShapes),
                     [&](const Shape& s) { return s.name == name; });
    if (shape == std::end(kShapes)) {
      std::fprintf(stderr, "no shape \"%s\"\n", name.c_str());
      return 2;
    }
    for (int threads : arguments.threads) {
      if (!RunCase(*shape, threads, arguments)) return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace atl::engine

int main(int argc, char** argv) { return atl::engine::Main(argc, argv); }
