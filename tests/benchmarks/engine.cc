// Training speed of the engine: tokens a second, and the share of oneDNN's peak
// for the same type, measured in the same run.
//
// usage: engine [--json] [--shapes=quick,4m,14m,124m] [--threads=1,2]
//               [--compute=f32,bf16] [--steps=N]
//
// A step is forward, backward, clipping and AdamW on random tokens. The result
// is the median of N steps (default 5, more for small shapes) for each shape
// and thread count. Operations per step are 6 P R + 12 L C T R for P parameters
// (a tied head counted once) and R tokens. A peak is the best of several runs
// of a 2048 x 2048 x 2048 product with as many threads, right before and after:
// of f32, and of bfloat16 operands summed in f32. A CPU whose bf16 peak is
// below its f32 peak computes bf16 by f32 products (worker/engine/DESIGN.md),
// so its share can exceed 1. With --json, standard output has one JSON object
// per result and nothing else.

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
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
#include "oneapi/dnnl/dnnl.hpp"
#include "tests/benchmarks/engine_shapes.h"
#include "worker/engine/trainer.h"

namespace atl::engine {
namespace {

struct Arguments {
  bool json = false;
  int steps = 0;  // 0: depends on the shape.
  std::vector<std::string> shapes = {"quick", "4m", "14m", "124m"};
  std::vector<int> threads = {1, 2};
  std::vector<std::string> computes = {"f32", "bf16"};
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t kPeakSize = 2048;

// Operations a second of the best of several runs of the kPeakSize^3 product
// that `make` creates, with `threads` of oneDNN's threads; 0: no product. Runs
// on another thread, because the thread count is set per thread.
double MeasureBest(int threads,
                   const std::function<std::function<void()>()>& make) {
  double best = 0;
  std::thread([&] {
    omp_set_num_threads(threads);
    const std::function<void()> product = make();
    if (!product) return;
    for (int run = 0; run < 8; ++run) {
      const double start = Seconds();
      product();
      best = std::max(
          best, 2.0 * kPeakSize * kPeakSize * kPeakSize / (Seconds() - start));
    }
  }).join();
  return best;
}

double PeakF32(int threads) {
  const size_t count = kPeakSize * kPeakSize;
  std::vector<float> a(count, 0.5f), b(count, 0.25f), c(count);
  return MeasureBest(threads, [&] {
    return [&] {
      dnnl_sgemm('N', 'N', kPeakSize, kPeakSize, kPeakSize, 1.0f, a.data(),
                 kPeakSize, b.data(), kPeakSize, 0.0f, c.data(), kPeakSize);
    };
  });
}

// Weights have the layout that oneDNN prefers. Creates nothing if oneDNN lacks
// this product on the CPU.
double PeakBf16(int threads) {
  return MeasureBest(threads, []() -> std::function<void()> {
    using Type = dnnl::memory::data_type;
    using Tag = dnnl::memory::format_tag;
    const dnnl::memory::dims dims = {kPeakSize, kPeakSize};
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const dnnl::matmul::desc desc({dims, Type::bf16, Tag::ab},
                                  {dims, Type::bf16, Tag::any},
                                  {dims, Type::f32, Tag::ab});
    const dnnl::matmul::primitive_desc made(desc, engine,
                                            /*allow_empty=*/true);
    if (!made) return nullptr;
    dnnl::memory a(made.src_desc(), engine), b(made.weights_desc(), engine);
    dnnl::memory c(made.dst_desc(), engine);
    std::memset(a.get_data_handle(), 0, made.src_desc().get_size());
    std::memset(b.get_data_handle(), 0, made.weights_desc().get_size());
    return [=, matmul = dnnl::matmul(made),
            stream = dnnl::stream(engine)]() mutable {
      matmul.execute(
          stream,
          {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
      stream.wait();
    };
  });
}

double PeakFlops(int threads, ComputeType compute) {
  return compute == ComputeType::kBf16 ? PeakBf16(threads) : PeakF32(threads);
}

// Median seconds per step, after two warm-up steps; negative: the trainer
// fails.
double SecondsAStep(Trainer& trainer, const BenchmarkShape& shape, int steps,
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

bool RunCase(const BenchmarkShape& shape, int threads,
             const std::string& compute_name, const Arguments& arguments) {
  const ComputeType compute =
      compute_name == "bf16" ? ComputeType::kBf16 : ComputeType::kF32;
  TrainerOptions options = MakeOptions(shape, threads);
  options.model.tie_embeddings = true;
  options.compute = compute;
  auto trainer = Trainer::Create(options);
  if (!trainer.ok()) {
    std::fprintf(stderr, "%s: %s\n", shape.name.c_str(),
                 trainer.status().ToString().c_str());
    return false;
  }
  std::mt19937 random(1);
  FillParameters(**trainer, random);
  double peak = PeakFlops(threads, compute);
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
  peak = std::max(peak, PeakFlops(threads, compute));
  const double share = peak > 0 ? flops / seconds / peak : 0;
  if (arguments.json) {
    std::printf(
        "{\"case\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, "
        "\"tokens_per_second\": %.1f, \"peak_share\": %.4f, "
        "\"peak_gflops\": %.1f}\n",
        shape.name.c_str(), compute_name.c_str(), threads, rows / seconds,
        share, peak / 1e9);
  } else {
    std::printf(
        "%-6s %-4s %8.2f M parameters, %d threads: %9.1f tokens/s, "
        "%6.1f of %6.1f GFLOP/s (%.2f)\n",
        shape.name.c_str(), compute_name.c_str(), parameters / 1e6, threads,
        rows / seconds, flops / seconds / 1e9, peak / 1e9, share);
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
    } else if (absl::ConsumePrefix(&argument, "--compute=")) {
      arguments->computes = absl::StrSplit(argument, ',');
      for (const std::string& name : arguments->computes) {
        if (name != "f32" && name != "bf16") return false;
      }
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
                 "[--threads=1,2] [--compute=f32,bf16] [--steps=N]\n");
    return 2;
  }
  for (const std::string& name : arguments.shapes) {
    const BenchmarkShape* shape = FindShape(name);
    if (shape == nullptr) {
      std::fprintf(stderr, "no shape \"%s\"\n", name.c_str());
      return 2;
    }
    for (int threads : arguments.threads) {
      for (const std::string& compute : arguments.computes) {
        if (!RunCase(*shape, threads, compute, arguments)) return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace atl::engine

int main(int argc, char** argv) { return atl::engine::Main(argc, argv); }
