// Scaling of a mesh of CPU ranks: steps of the same batch alternate between one
// rank and the mesh. Every rank has one thread.
//
// usage: mesh [--json] [--shape=quick] [--steps=N]
// [--meshes=MESH:MODE:SCHEDULE:M;...]
//
// MODE is replicate, zero1, zero2 or zero3; SCHEDULE gpipe, 1f1b or
// interleaved2 (two chunks per rank); M micro-batches. The single rank has as
// many. With n ranks, T_1 and T_n are the medians of N steps (default 9):
//
//   scaling      T_1 / T_n
//   idle_share   1 - T_1 / (n T_n): the share of the ranks' time that a single
//                rank would not need: waits, transfers, duplicate work. Not
//                meaningful with more ranks than processors.
//   wait_share   the share of the ranks' time inside collectives: waits for
//                each other, and copies
//   bubble       (p - 1) / (v m + p - 1), the wait of a pipeline of equal
//                stages
//
// Stages are equal in the shape `even`, which has a small embedding and head:
// compare its wait_share with the bubble.
//
// With --json, standard output has one JSON object per result and nothing else.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/benchmarks/engine_shapes.h"
#include "tests/benchmarks/timed_collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/parallel/mesh_trainer.h"

namespace atl::engine {
namespace {

constexpr char kMeshes[] =
    "dp_replicate=2:replicate:1f1b:1;dp_shard=2:zero1:1f1b:1;"
    "dp_shard=2:zero2:1f1b:1;dp_shard=2:zero3:1f1b:1;tp=2:zero3:1f1b:1;"
    "cp=2:zero3:1f1b:1;pp=2:zero2:gpipe:8;pp=2:zero2:1f1b:8;"
    "pp=2:zero2:interleaved2:8;dp_shard=4:zero3:1f1b:1;"
    "pp=2,tp=2:zero2:1f1b:4";

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// "pp=2,tp=2:zero2:1f1b:4".
bool ParseMesh(absl::string_view text, MeshOptions* options) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() != 4) return false;
  const auto mesh = Mesh::Parse(parts[0]);
  if (!mesh.ok()) return false;
  options->mesh = *mesh;
  constexpr absl::string_view kModes[] = {"replicate", "zero1", "zero2",
                                          "zero3"};
  const auto* mode = std::find(std::begin(kModes), std::end(kModes), parts[1]);
  if (mode == std::end(kModes)) return false;
  options->sharding = static_cast<ShardingMode>(mode - std::begin(kModes));
  if (parts[2] == "gpipe") {
    options->pipeline = PipelineKind::kGpipe;
  } else if (parts[2] == "interleaved2") {
    options->pipeline = PipelineKind::kInterleaved;
    options->chunk_count = 2;
  } else if (parts[2] != "1f1b") {
    return false;
  }
  return absl::SimpleAtoi(parts[3], &options->micro_batch_count);
}

class Runner {
 public:
  Runner(const BenchmarkShape& shape, const MeshOptions& mesh)
      : world_(mesh.mesh.rank_count()), waited_(mesh.mesh.rank_count()) {
    auto ranks = world_.TakeRanks();
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r] = collective::MakeTimed(std::move(ranks[r]), &waited_[r]);
    }
    auto made = MakeMeshTrainer(MakeOptions(shape, mesh.mesh.rank_count()),
                                mesh, absl::MakeSpan(ranks));
    status_ = made.status();
    if (!status_.ok()) return;
    trainer_ = *std::move(made);
    std::mt19937 random(1);
    FillParameters(*trainer_, random);
    status_ = trainer_->Scatter();
    tokens_.resize(shape.batch * shape.length);
    for (int32_t& t : tokens_) t = static_cast<int32_t>(random() % shape.vocab);
  }

  const absl::Status& status() const { return status_; }
  void Step() {
    if (seconds_.size() == 2) std::fill(waited_.begin(), waited_.end(), 0.0);
    const double start = Seconds();
    status_ = trainer_->Step(tokens_, tokens_, 0).status();
    seconds_.push_back(Seconds() - start);
  }
  // Share of the ranks' time that they waited, without the first two steps.
  double WaitShare() const {
    const double all =
        std::accumulate(seconds_.begin() + 2, seconds_.end(), 0.0);
    return std::accumulate(waited_.begin(), waited_.end(), 0.0) /
           (all * static_cast<double>(waited_.size()));
  }
  double Median() {
    std::sort(seconds_.begin() + 2, seconds_.end());
    return seconds_[2 + (seconds_.size() - 2) / 2];
  }

 private:
  collective::LocalWorld world_;
  std::vector<double> waited_;  // Seconds [rank].
  std::unique_ptr<Trainer> trainer_;
  std::vector<int32_t> tokens_;
  std::vector<double> seconds_;
  absl::Status status_;
};

bool RunCase(const BenchmarkShape& shape, absl::string_view text, int steps,
             bool json) {
  MeshOptions mesh;
  if (!ParseMesh(text, &mesh)) {
    std::fprintf(stderr, "no mesh \"%s\"\n", std::string(text).c_str());
    return false;
  }
  Runner one(shape, {.micro_batch_count = mesh.micro_batch_count});
  Runner many(shape, mesh);
  for (int step = 0; step < steps + 2; ++step) {
    for (Runner* runner : {&one, &many}) {
      if (runner->status().ok()) runner->Step();
      if (runner->status().ok()) continue;
      std::fprintf(stderr, "%s\n", runner->status().ToString().c_str());
      return false;
    }
  }
  const double n = mesh.mesh.rank_count();
  const double p = mesh.mesh.size(MeshDimension::kPp);
  const double wait_share = many.WaitShare();
  const double scaling = one.Median() / many.Median();
  const double bubble =
      (p - 1) / (mesh.chunk_count * mesh.micro_batch_count + p - 1);
  const double rate =
      static_cast<double>(shape.batch * shape.length) / many.Median();
  std::printf(
      json ? "{\"case\": \"%s\", \"mesh\": \"%s\", \"ranks\": %.0f, "
             "\"processors\": %u, \"tokens_per_second\": %.1f, "
             "\"scaling\": %.3f, \"idle_share\": %.3f, \"wait_share\": %.3f, "
             "\"bubble\": %.3f}\n"
           : "%-6s %-32s %.0f ranks on %u processors: %9.1f tokens/s, "
             "%.2f of one rank, idle %.2f, wait %.2f, bubble %.2f\n",
      shape.name.c_str(), std::string(text).c_str(), n,
      std::thread::hardware_concurrency(), rate, scaling, 1 - scaling / n,
      wait_share, bubble);
  std::fflush(stdout);
  return true;
}

int Main(int argc, char** argv) {
  bool json = false;
  int steps = 9;
  std::string shape_name = "quick", meshes = kMeshes;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool good = true;
    if (argument == "--json") {
      json = true;
    } else if (absl::ConsumePrefix(&argument, "--shape=")) {
      shape_name = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--meshes=")) {
      meshes = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--steps=")) {
      good = absl::SimpleAtoi(argument, &steps) && steps >= 1 && steps <= 1000;
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr,
                   "usage: mesh [--json] [--shape=tiny|quick|even|4m|14m] "
                   "[--steps=N] [--meshes=MESH:MODE:SCHEDULE:M;...]\n");
      return 2;
    }
  }
  const BenchmarkShape* shape = FindShape(shape_name);
  if (shape == nullptr) {
    std::fprintf(stderr, "no shape \"%s\"\n", shape_name.c_str());
    return 2;
  }
  for (absl::string_view mesh : absl::StrSplit(meshes, ';')) {
    if (!RunCase(*shape, mesh, steps, json)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace atl::engine

int main(int argc, char** argv) { return atl::engine::Main(argc, argv); }
