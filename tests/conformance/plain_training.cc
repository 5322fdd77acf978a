// Trains a run's model alone, with nothing between its steps, to compare runs
// with.
//
//     plain_training --spec SPEC.bin --parameters V0.bin --out OUT.bin
//
// SPEC.bin is a serialised atoll.v1.RunSpec with one fragment, V0.bin its
// version 0 as f32 in layout order. Takes H * rounds steps on data shard 0 and
// writes the parameters. With --round-trip it applies, after every step, the
// f32 step of an outer SGD with rate 1: theta - (theta - theta').
//
// It shares only the trainer and the batches with the island, not its loop, the
// servers or the coordinator.

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run.pb.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "worker/data/batch_reader.h"
#include "worker/data/data_set.h"
#include "worker/engine/trainer.h"

namespace atl::conformance {
namespace {

struct Flags {
  std::string spec;
  std::string parameters;
  std::string out;
  bool round_trip = false;
};

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

engine::TrainerOptions MakeOptions(const v1::RunSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const v1::InnerSpec& inner = spec.inner();
  engine::TrainerOptions options;
  options.model.vocab_size = model.vocab_size();
  options.model.hidden_size = model.hidden_size();
  options.model.intermediate_size = model.intermediate_size();
  options.model.layer_count = model.layer_count();
  options.model.head_count = model.head_count();
  options.model.kv_head_count = model.kv_head_count();
  options.model.sequence_length_max = model.sequence_length();
  options.model.rope_theta = model.rope_theta();
  options.model.rms_norm_eps = model.rms_norm_eps();
  options.model.tie_embeddings = model.tie_embeddings();
  options.optimizer.kind = inner.optimizer() == v1::INNER_OPTIMIZER_KIND_ADAMW
                               ? engine::OptimizerKind::kAdamW
                               : engine::OptimizerKind::kSgd;
  options.optimizer.beta1 = inner.beta1();
  options.optimizer.beta2 = inner.beta2();
  options.optimizer.epsilon = inner.epsilon();
  options.optimizer.weight_decay = inner.weight_decay();
  options.optimizer.clip_norm = inner.clip_norm();
  options.schedule.peak = inner.learning_rate();
  options.schedule.warmup_step_count = inner.warmup_step_count();
  options.schedule.total_step_count =
      spec.schedule().inner_step_count() * spec.schedule().round_count();
  options.schedule.final_fraction = inner.final_learning_rate_fraction();
  options.batch_size = inner.batch_size();
  options.sequence_length = model.sequence_length();
  return options;
}

absl::Status Train(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::string spec_bytes, ReadAll(flags.spec));
  v1::RunSpec spec;
  if (!spec.ParseFromString(spec_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.spec, ": not a RunSpec"));
  }
  const engine::TrainerOptions options = MakeOptions(spec);
  ASSIGN_OR_RETURN(auto trainer, engine::Trainer::Create(options));
  ASSIGN_OR_RETURN(auto data_set, worker::DataSet::Open(
                                      spec.data(), spec.data().path()));
  ASSIGN_OR_RETURN(worker::BatchReader reader,
                   worker::BatchReader::Create(std::move(data_set), spec));

  ASSIGN_OR_RETURN(const std::string start, ReadAll(flags.parameters));
  const absl::Span<float> theta = trainer->parameters();
  if (start.size() != theta.size() * sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.parameters, ": ", start.size(), " bytes, not ",
                     theta.size() * sizeof(float)));
  }
  std::copy(start.begin(), start.end(), reinterpret_cast<char*>(theta.data()));

  std::vector<float> before(theta.size());
  worker::Batch batch;
  for (int64_t step = 0; step < options.schedule.total_step_count; ++step) {
    std::copy(theta.begin(), theta.end(), before.begin());
    RETURN_IF_ERROR(reader.Read(0, step * options.batch_size, batch));
    RETURN_IF_ERROR(trainer->Step(batch.inputs, batch.targets, step).status());
    if (!flags.round_trip) continue;
    for (size_t i = 0; i < theta.size(); ++i) {
      const float gradient = before[i] - theta[i];
      theta[i] = before[i] - gradient;
    }
  }
  std::ofstream out(flags.out, std::ios::binary);
  out.write(reinterpret_cast<const char*>(theta.data()),
            theta.size() * sizeof(float));
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(flags.out);
}

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app("plain_training",
                     "Trains a run's model with nothing between its steps.");
  app.Add("--spec", flags.spec).Required();
  app.Add("--parameters", flags.parameters).Required();
  app.Add("--out", flags.out).Required();
  app.AddFlag("--round-trip", flags.round_trip);
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  const absl::Status status = Train(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace atl::conformance

int main(int argc, char** argv) { return atl::conformance::Main(argc, argv); }
