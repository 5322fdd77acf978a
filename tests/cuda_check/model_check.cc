#include "tests/cuda_check/model_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "tests/cuda_check/random_inputs.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/optimizer/inner_optimizer.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

constexpr int kSteps = 20;

// Relative errors: of a loss, and of a gradient to its tensor's largest.
struct Bounds {
  double loss, gradient, steps;
};
Bounds ChooseBounds(ComputeType compute) {
  // bfloat16 has 8 bits, and losses are near 5.
  if (compute == ComputeType::kBf16) return {0.01, 0.1, 0.01};
  return {2e-6, 1e-4, 5e-5};
}

// Random tokens of a case's shape.
class RandomBatch {
 public:
  RandomBatch(const ModelCase& model_case, std::mt19937_64& random)
      : inputs_(RandomTokens(model_case.batch * model_case.length,
                             model_case.config.vocab_size, random)),
        targets_(RandomTokens(model_case.batch * model_case.length,
                              model_case.config.vocab_size, random)),
        batch_{.batch = model_case.batch,
               .sequence_length = model_case.length,
               .inputs = inputs_.data(),
               .targets = targets_.data()} {}
  RandomBatch(const RandomBatch&) = delete;
  RandomBatch& operator=(const RandomBatch&) = delete;

  const TokenBatch& get() const { return batch_; }

 private:
  const std::vector<int32_t> inputs_, targets_;
  const TokenBatch batch_;
};

template <typename T>
class Replica {
 public:
  explicit Replica(BasicOps<T>& ops) : ops_(ops) {}

  absl::Status Init(const ModelCase& model_case,
                    const std::vector<float>& parameters) {
    ASSIGN_OR_RETURN(decoder_, Decoder<T>::Create(
                                   model_case.config,
                                   model_case.batch * model_case.length, ops_));
    const int64_t count = decoder_->layout().element_count;
    const auto take = [&](Arena& arena) {
      parameters_ = arena.Take<T>(count);
      gradients_ = arena.Take<T>(count);
    };
    ASSIGN_OR_RETURN(arena_, Arena::CreateFor(take, ops_.memory()));
    const std::vector<T> values(parameters.begin(), parameters.end());
    ops_.FromHost(values.size() * sizeof(T), values.data(), parameters_);
    return ops_.status();
  }

  T ForwardBackward(const TokenBatch& batch) {
    return decoder_->ForwardBackward(parameters_, batch, gradients_);
  }
  InnerOptimizer::Sums Replay(const TokenBatch& host_batch, double rate,
                              InnerOptimizer& optimizer) {
    const TokenBatch batch = decoder_->Fetch(host_batch);
    optimizer.BeginQueued(rate);
    ops_.Replay(batch.batch, [&] {
      decoder_->QueueForwardBackward(parameters_, batch, gradients_);
      optimizer.QueueStep(batch.rows(), decoder_->losses(), gradients_,
                          parameters_);
    });
    return optimizer.EndQueued();
  }
  std::vector<T> Gradients() {
    std::vector<T> values(decoder_->layout().element_count);
    ops_.ToHost(values.size() * sizeof(T), gradients_, values.data());
    return values;
  }

  const ParameterLayout& layout() const { return decoder_->layout(); }
  double router_loss() const { return decoder_->router_loss(); }
  T* parameters() { return parameters_; }
  T* gradients() { return gradients_; }

 private:
  BasicOps<T>& ops_;
  std::unique_ptr<Decoder<T>> decoder_;
  Arena arena_;
  T* parameters_ = nullptr;
  T* gradients_ = nullptr;
};

absl::Status Near(const std::string& what, double actual, double expected,
                  double bound) {
  if (std::abs(actual - expected) <= bound) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " is ", actual,
                                          ", expected ", expected,
                                          " with an error of at most ", bound));
}

absl::Status CompareGradients(const ParameterLayout& layout,
                              const std::vector<float>& actual,
                              const std::vector<double>& expected,
                              double bound) {
  double all = 0;
  for (double e : expected) all = std::max(all, std::abs(e));
  for (const ParameterSpec& spec : layout.parameters) {
    // A gradient that is only rounding error, as a key bias's, is bounded by
    // the model's largest instead.
    double largest = 1e-3 * all;
    for (int64_t i = 0; i < spec.element_count; ++i) {
      largest = std::max(largest, std::abs(expected[spec.offset + i]));
    }
    for (int64_t i = 0; i < spec.element_count; ++i) {
      RETURN_IF_ERROR(Near(absl::StrCat("the gradient of ", spec.name, " ", i),
                           actual[spec.offset + i], expected[spec.offset + i],
                           bound * largest));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ModelCase> ModelCases() {
  std::vector<ModelCase> cases(5);
  for (ModelCase& c : cases) {
    c.config.vocab_size = 211;
    c.config.hidden_size = 96;
    c.config.intermediate_size = 160;
    c.config.layer_count = 2;
    c.config.head_count = 6;
    c.config.kv_head_count = 6;
    c.config.sequence_length_max = 64;
    c.config.rms_norm_eps = 1e-5;
  }
  cases[0].name = "llama";
  cases[0].config.kv_head_count = 2;
  cases[1].name = "gpt2";
  cases[1].config.architecture = Architecture::kGpt2;
  cases[1].config.tie_embeddings = true;
  for (int i : {2, 3}) {
    cases[i].name = i == 2 ? "mixtral" : "mixtral with capacity";
    cases[i].config.architecture = Architecture::kMixtral;
    cases[i].config.expert_count = 5;
    cases[i].config.experts_per_token = 2;
    cases[i].config.router_loss_weight = 0.02;
  }
  cases[3].config.expert_capacity_factor = 1.0;
  // A length for which libraries have attention.
  cases[4] = cases[0];
  cases[4].name = "llama of 64";
  cases[4].length = 64;
  return cases;
}

absl::Status CheckModel(const ModelCase& model_case, uint64_t seed,
                        ComputeType compute, Ops& ops) {
  const Bounds bounds = ChooseBounds(compute);
  std::mt19937_64 random(seed);
  const ParameterLayout layout = MakeParameterLayout(model_case.config);
  const std::vector<float> parameters = RandomParameters(layout, random);
  const RandomBatch random_batch(model_case, random);
  const TokenBatch& batch = random_batch.get();
  PlainOps<double> exact_ops;
  PlainOps<float> plain_ops;
  Replica<double> exact(exact_ops);
  Replica<float> plain(plain_ops), device(ops);
  RETURN_IF_ERROR(exact.Init(model_case, parameters));
  RETURN_IF_ERROR(plain.Init(model_case, parameters));
  RETURN_IF_ERROR(device.Init(model_case, parameters));

  const double expected = exact.ForwardBackward(batch);
  const double loss = device.ForwardBackward(batch);
  RETURN_IF_ERROR(ops.status());
  RETURN_IF_ERROR(Near("the loss", loss, expected, bounds.loss * expected));
  const bool routes = model_case.config.is_mixture();
  // Rounding may choose an expert of nearly equal probability and change the
  // rest.
  if (compute == ComputeType::kF32 || !routes) {
    RETURN_IF_ERROR(Near("the router's loss", device.router_loss(),
                         exact.router_loss(), 1e-4 * exact.router_loss()));
    RETURN_IF_ERROR(CompareGradients(layout, device.Gradients(),
                                     exact.Gradients(), bounds.gradient));
  }

  OptimizerOptions options;
  ASSIGN_OR_RETURN(auto plain_optimizer,
                   InnerOptimizer::Create(options, layout, plain_ops));
  ASSIGN_OR_RETURN(auto device_optimizer,
                   InnerOptimizer::Create(options, layout, ops));
  for (int step = 0; step < kSteps; ++step) {
    const double a = device.ForwardBackward(batch);
    const double e = plain.ForwardBackward(batch);
    RETURN_IF_ERROR(ops.status());
    RETURN_IF_ERROR(
        Near(absl::StrCat("the loss of step ", step), a, e, bounds.steps * e));
    plain_optimizer->Step(1e-3, plain.gradients(), plain.parameters());
    device_optimizer->Step(1e-3, device.gradients(), device.parameters());
  }
  return ops.status();
}

absl::Status CheckReplay(const ModelCase& model_case, uint64_t seed, Ops& ops) {
  if (!ops.replays()) {
    return absl::FailedPreconditionError("graphs are switched off");
  }
  std::mt19937_64 random(seed);
  const ParameterLayout layout = MakeParameterLayout(model_case.config);
  const std::vector<float> parameters = RandomParameters(layout, random);
  const int64_t rows = model_case.batch * model_case.length;
  Replica<float> called(ops), replayed(ops);
  RETURN_IF_ERROR(called.Init(model_case, parameters));
  RETURN_IF_ERROR(replayed.Init(model_case, parameters));
  ASSIGN_OR_RETURN(auto called_optimizer,
                   InnerOptimizer::Create({}, layout, ops));
  ASSIGN_OR_RETURN(auto replayed_optimizer,
                   InnerOptimizer::Create({}, layout, ops));
  for (int step = 0; step < kSteps; ++step) {
    const RandomBatch random_batch(model_case, random);
    const TokenBatch& batch = random_batch.get();
    const double rate = 1e-3 * (1 + step % 4);
    const double loss = called.ForwardBackward(batch);
    const double norm =
        called_optimizer->Step(rate, called.gradients(), called.parameters());
    const InnerOptimizer::Sums sums =
        replayed.Replay(batch, rate, *replayed_optimizer);
    RETURN_IF_ERROR(ops.status());
    const std::string note = ops.TakeNote();
    if (!note.empty()) return absl::FailedPreconditionError(note);
    const auto mean = static_cast<float>(sums.loss / static_cast<double>(rows));
    RETURN_IF_ERROR(
        Near(absl::StrCat("the replayed loss of step ", step), mean, loss, 0));
    RETURN_IF_ERROR(Near(absl::StrCat("the replayed norm of step ", step),
                         sums.gradient_norm, norm, 0));
  }
  return ops.status();
}

}  // namespace atl::engine::check
