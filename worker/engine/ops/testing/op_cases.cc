#include "worker/engine/ops/testing/op_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

class Maker {
 public:
  explicit Maker(const OpCaseOptions& options)
      : small_(options.small), random_(options.seed) {}

  std::vector<float> Random(int64_t count, float scale = 1.0f) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  std::vector<int32_t> Tokens(int64_t count, int64_t vocab) {
    std::uniform_int_distribution<int32_t> token(
        0, static_cast<int32_t>(vocab) - 1);
    std::vector<int32_t> tokens(count);
    for (int32_t& t : tokens) t = token(random_);
    return tokens;
  }
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool small() const { return small_; }

  // `run` takes BasicOps<T>& and OpBuffers<T>, for any T.
  template <typename F>
  OpCase& Add(std::string name, std::vector<std::vector<float>> floats,
              std::vector<std::vector<int32_t>> ints, const F& run,
              double tolerance = 1e-5) {
    OpCase op_case;
    op_case.name = std::move(name);
    op_case.floats = std::move(floats);
    op_case.ints = std::move(ints);
    op_case.tolerance = tolerance;
    op_case.run_f32 = run;
    op_case.run_f64 = run;
    cases.push_back(std::move(op_case));
    return cases.back();
  }

  std::vector<OpCase> cases;

 private:
  const bool small_;
  std::mt19937_64 random_;
};

template <typename B>
using ElementOf = std::decay_t<decltype(*std::declval<B>().floats[0])>;

struct LinearShape {
  int64_t m, n, k;
};

void AddLinear(Maker& make) {
  std::vector<LinearShape> shapes = {
      {1, 1, 1}, {1, 40, 24}, {7, 5, 3}, {33, 17, 65}, {64, 48, 32}};
  shapes.push_back(
      {make.Between(1, 70), make.Between(1, 70), make.Between(1, 70)});
  if (!make.small()) {
    shapes.insert(shapes.end(), {{300, 96, 32},
                                 {512, 384, 48},
                                 {520, 700, 33},
                                 {256, 1024, 768},
                                 {1, 5000, 64}});
  }
  for (const auto& [m, n, k] : shapes) {
    OpCase& added =
        make.Add(absl::StrCat("linear ", m, "x", n, "x", k),
                 {make.Random(m * k), make.Random(n * k), make.Random(m * n),
                  make.Random(m * n), make.Random(m * k), make.Random(n * k),
                  make.Random(n * k)},
                 {}, [m = m, n = n, k = k](auto& ops, const auto& b) {
                   const auto& f = b.floats;
                   ops.ParametersChanged();
                   ops.Linear(m, n, k, f[0], f[1], f[3]);
                   ops.LinearBackwardInput(m, n, k, f[2], f[1], f[4]);
                   ops.LinearBackwardWeight(m, n, k, f[2], f[0], f[5], false);
                   ops.LinearBackwardWeight(m, n, k, f[2], f[0], f[6], true);
                 });
    added.operands = {0, 1, 2};
  }
}

void AddNorms(Maker& make) {
  std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1, 9}, {3, 19}, {40, 128}, {make.Between(30, 90), make.Between(9, 200)}};
  if (!make.small()) shapes.insert(shapes.end(), {{4099, 768}, {70, 8192}});
  for (const auto& [rows, c] : shapes) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool with_delta = variant % 2 == 1, accumulate = variant / 2 == 1;
      make.Add(absl::StrCat("rms_norm ", rows, "x", c, " variant ", variant),
               {make.Random(rows * c), make.Random(rows * c), make.Random(c),
                make.Random(rows * c), make.Random(rows * c), make.Random(rows),
                make.Random(rows * c), make.Random(rows * c), make.Random(c)},
               {}, [=, rows = rows, c = c](auto& ops, const auto& b) {
                 const auto& f = b.floats;
                 // In place if there is a delta and gradients are added.
                 auto* sum = !with_delta ? nullptr : accumulate ? f[0] : f[3];
                 ops.AddRmsNorm(rows, c, 1e-5, f[0],
                                with_delta ? f[1] : nullptr, f[2], sum, f[4],
                                f[5]);
                 ops.RmsNormBackward(rows, c, f[6], with_delta ? sum : f[0],
                                     f[5], f[2], f[7], f[8], accumulate);
               });
      if (with_delta) continue;
      make.Add(
          absl::StrCat("layer_norm ", rows, "x", c, " variant ", variant),
          {make.Random(rows * c), make.Random(c), make.Random(c),
           make.Random(rows * c), make.Random(rows), make.Random(rows),
           make.Random(rows * c), make.Random(rows * c), make.Random(c),
           make.Random(c)},
          {},
          [=, rows = rows, c = c](auto& ops, const auto& b) {
            const auto& f = b.floats;
            ops.LayerNorm(rows, c, 1e-3, f[0], f[1], f[2], f[3], f[4], f[5]);
            ops.LayerNormBackward(rows, c, f[6], f[0], f[4], f[5], f[1], f[7],
                                  f[8], f[9], accumulate);
          },
          3e-5);
    }
  }
}

void AddStream(Maker& make) {
  for (int64_t c : {int64_t{1}, int64_t{48}, make.Between(2, 90)}) {
    const int64_t length = make.Between(1, 40), rows = 3 * length;
    make.Add(absl::StrCat("residuals, biases, positions ", rows, "x", c),
             {make.Random(rows * c), make.Random(rows * c), make.Random(c),
              make.Random(rows * c), make.Random(length * c), make.Random(c),
              make.Random(c), make.Random((length + 2) * c)},
             {}, [=](auto& ops, const auto& b) {
               const auto& f = b.floats;
               using T = ElementOf<decltype(b)>;
               ops.AddRows(rows, c, f[0], f[1], f[2], f[3]);
               ops.AddRows(rows, c, f[0], f[1], static_cast<const T*>(nullptr),
                           f[1]);
               ops.AddBias(rows, c, f[2], f[0]);
               ops.AddPositions(rows, length, c, f[4], f[0]);
               ops.BiasBackward(rows, c, f[3], f[5], true);
               ops.BiasBackward(rows, c, f[3], f[6], false);
               ops.PositionsBackward(rows, length, c, f[3], f[7]);
             });
  }
}

void AddActivations(Maker& make) {
  std::vector<int64_t> sizes = {1, 33, make.Between(2, 3000)};
  if (!make.small()) sizes.push_back(5'000'000);
  for (int64_t n : sizes) {
    // Near the zero of a derivative a value has few right digits: there it is
    // held only beside larger ones.
    const auto inputs = [&](int64_t count) {
      auto values = make.Random(count, 3.0f);
      if (n == 1) values[0] = std::abs(values[0]);
      return values;
    };
    make.Add(
        absl::StrCat("gelu ", n),
        {inputs(n), make.Random(n), make.Random(n), make.Random(n)},
        {}, [=](auto& ops, const auto& b) {
          const auto& f = b.floats;
          ops.Gelu(n, f[0], f[1]);
          ops.GeluBackward(n, f[0], f[2], f[3]);
          ops.GeluBackward(n, f[0], f[2], f[0]);
        });
    const int64_t rows = std::min<int64_t>(n, 17), inner = n / rows;
    make.Add(absl::StrCat("swiglu ", rows, "x", inner),
             {inputs(2 * rows * inner), make.Random(rows * inner),
              make.Random(rows * inner), make.Random(2 * rows * inner)},
             {}, [=](auto& ops, const auto& b) {
               const auto& f = b.floats;
               ops.SwiGlu(rows, inner, f[0], f[1]);
               ops.SwiGluBackward(rows, inner, f[0], f[2], f[3]);
               ops.SwiGluBackward(rows, inner, f[0], f[2], f[0]);
             });
  }
}

// Chooses q and k so that the softmax is neither flat nor one-hot.
OpCase& AddAttention(Maker& make, const AttentionShape& s, double tolerance) {
  const int64_t rows = s.rows(), out = rows * s.out_size();
  return make.Add(
      absl::StrCat("attention B", s.batch, " T", s.sequence_length, " H",
                   s.head_count, " G", s.kv_head_count, " D", s.head_dim),
      {make.Random(rows * s.qkv_size()), make.Random(out),
       make.Random(rows * s.head_count), make.Random(out),
       make.Random(rows * s.qkv_size())},
      {},
      [s](auto& ops, const auto& b) {
        const auto& f = b.floats;
        ops.Attention(s, f[0], f[1], f[2]);
        ops.AttentionBackward(s, f[0], f[1], f[2], f[3], f[4]);
      },
      tolerance);
}

std::vector<AttentionShape> AttentionShapes(Maker& make) {
  std::vector<AttentionShape> shapes = {{1, 1, 1, 1, 2},    {2, 5, 2, 1, 6},
                                        {1, 70, 4, 2, 32},  {1, 130, 2, 2, 64},
                                        {1, 67, 2, 1, 128}, {1, 40, 1, 1, 200},
                                        {1, 64, 3, 3, 48},  {3, 33, 2, 1, 80}};
  shapes.push_back(
      {make.Between(1, 3), make.Between(2, 90), 4, 2, 2 * make.Between(1, 70)});
  if (!make.small()) {
    shapes.insert(shapes.end(), {{2, 300, 6, 2, 64},
                                 {1, 513, 4, 4, 128},
                                 {2, 260, 2, 1, 256},
                                 {2, 256, 6, 2, 64},
                                 {1, 512, 4, 4, 128},
                                 {4, 129, 12, 12, 64}});
  }
  return shapes;
}

void AddRope(Maker& make) {
  for (int64_t d : {int64_t{2}, int64_t{64}, 2 * make.Between(1, 50)}) {
    const AttentionShape s{2, make.Between(1, 30), 4, 2, d};
    make.Add(absl::StrCat("rope T", s.sequence_length, " D", d),
             {make.Random(s.sequence_length * d),
              make.Random(s.rows() * s.qkv_size()),
              make.Random(s.rows() * s.qkv_size())},
             {}, [s](auto& ops, const auto& b) {
               ops.Rope(s, b.floats[0], false, b.floats[1]);
               ops.Rope(s, b.floats[0], true, b.floats[2]);
             });
  }
}

void AddMixture(Maker& make) {
  for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{7}}) {
    const int64_t c = make.Between(1, 60), n = make.Between(k, 40);
    const int64_t of_group = make.small() ? make.Between(1, 150) : 1000;
    const int64_t groups = make.Between(1, 3), rows = groups * of_group;
    const RouteShape shape{.rows = rows,
                           .expert_count = n,
                           .experts_per_token = k,
                           .group_rows = of_group,
                           .capacity = std::max<int64_t>(1, of_group * k / n)};
    std::vector<float> before(groups * n);
    for (float& count : before) count = static_cast<float>(make.Between(0, 9));
    make.Add(
        absl::StrCat("mixture ", k, " of ", n, ", ", groups, "x", of_group,
                     "x", c),
        {make.Random(rows * n), make.Random(rows * n), make.Random(rows * k),
         make.Random(n), make.Random(n), make.Random(rows * c),
         std::vector<float>(rows * k * c), make.Random(rows * c),
         std::vector<float>(rows * k * c), make.Random(rows * k),
         make.Random(n, 0.1f), make.Random(rows * n), make.Random(rows * c),
         make.Random(rows * k), before, make.Random(groups * n)},
        {std::vector<int32_t>(rows * k), std::vector<int32_t>(rows * k),
         std::vector<int32_t>(rows * k), std::vector<int32_t>(2 * n + 2)},
        [=](auto& ops, const auto& b) {
          const auto& f = b.floats;
          using T = ElementOf<decltype(b)>;
          int32_t *experts = b.ints[0], *slots = b.ints[1];
          int32_t* sources = b.ints[2];
          std::vector<int64_t> begins(n + 1);
          ops.Route(shape, f[0], f[1], experts, f[2]);
          ops.AddRouteTotals(shape, f[1], experts, f[3], f[4]);
          ops.CountChoices(shape, experts, f[15]);
          ops.PlanDispatch(shape, experts,
                           k == 2 ? static_cast<const T*>(nullptr) : f[14],
                           slots, sources, begins.data());
          ops.FromHost(sizeof(int64_t) * begins.size(), begins.data(),
                       b.ints[3]);
          ops.GatherRows(begins[n], c, sources, f[5], f[6]);
          ops.CombineRows(shape, c, slots, f[2], f[6], f[7]);
          ops.CombineRowsBackward(shape, c, slots, f[2], f[6], f[12], f[8],
                                  f[9]);
          ops.CombineRowsBackward(shape, c, slots, f[2], f[6], f[12], f[6],
                                  f[13]);
          ops.CombineRows(shape, c, slots, static_cast<const T*>(nullptr), f[8],
                          f[12]);
          ops.RouteBackward(shape, f[1], experts, f[2], f[9], f[10], f[11]);
        },
        3e-5);
  }
}

void AddEmbedding(Maker& make) {
  std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1, 2}, {300, 7}, {600, 300}, {70, 70'000}};
  if (!make.small()) shapes.push_back({16'384, 50'304});
  for (const auto& [rows, vocab] : shapes) {
    const int64_t c = make.Between(1, 40);
    make.Add(absl::StrCat("embedding ", rows, " of ", vocab, "x", c),
             {make.Random(vocab * c), make.Random(rows * c),
              make.Random(rows * c), make.Random(vocab * c)},
             {make.Tokens(rows, vocab)},
             [rows = rows, vocab = vocab, c](auto& ops, const auto& b) {
               const auto& f = b.floats;
               ops.Embedding(rows, 0, vocab, c, b.ints[0], f[0], f[1]);
               ops.EmbeddingBackward(rows, 0, vocab, c, b.ints[0], f[2], f[3]);
             });
  }
}

void AddLoss(Maker& make) {
  std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1, 2}, {5, 33}, {20, 257}, {3, 5000}};
  if (!make.small()) shapes.push_back({130, 50'304});
  for (const auto& [rows, vocab] : shapes) {
    // A nearly certain target leaves p - 1, mostly rounding error. With two
    // tokens that is frequent if their logits are far apart.
    const float spread = vocab == 2 ? 1.0f : 5.0f;
    make.Add(
        absl::StrCat("cross_entropy ", rows, "x", vocab),
        {make.Random(rows * vocab, spread), make.Random(rows),
         make.Random(rows)},
        {make.Tokens(rows, vocab)},
        [rows = rows, vocab = vocab](auto& ops, const auto& b) {
          const auto& f = b.floats;
          ops.CrossEntropy(rows, vocab, f[0], b.ints[0], f[1]);
          ops.CrossEntropyBackward(rows, vocab, 0.25, f[0], b.ints[0], f[2]);
        });
  }
}

// Slices of a model, where ranks share one.
void AddSlices(Maker& make) {
  for (int64_t vocab : {int64_t{5}, int64_t{700}}) {
    const int64_t rows = make.Between(1, 150), c = make.Between(1, 30);
    const int64_t begin = make.Between(0, vocab - 1);
    const int64_t count = make.Between(1, vocab - begin);
    make.Add(absl::StrCat("embedding slice ", rows, " of ", begin, "+", count),
             {make.Random(count * c), make.Random(rows * c),
              make.Random(rows * c), make.Random(count * c),
              make.Random(rows * (c + 3)), make.Random(rows * (c + 1))},
             {make.Tokens(rows, vocab)}, [=](auto& ops, const auto& b) {
               const auto& f = b.floats;
               ops.Embedding(rows, begin, count, c, b.ints[0], f[0], f[1]);
               ops.EmbeddingBackward(rows, begin, count, c, b.ints[0], f[2],
                                     f[3]);
               ops.CopyColumns(rows, c, f[4] + 2, c + 3, f[5] + 1, c + 1);
             });
    make.Add(absl::StrCat("logit slice ", rows, " of ", begin, "+", count),
             {make.Random(rows * count, 5.0f), make.Random(rows),
              make.Random(rows), make.Random(rows), make.Random(rows)},
             {make.Tokens(rows, vocab)}, [=](auto& ops, const auto& b) {
               const auto& f = b.floats;
               const int32_t* targets = b.ints[0];
               ops.LogitTops(rows, count, f[0], f[1]);
               ops.LogitSums(rows, begin, count, f[0], targets, f[1], f[2],
                             f[3]);
               ops.LogitLosses(rows, f[1], f[2], f[3], f[4]);
               ops.LogitGradients(rows, begin, count, 0.25, targets, f[1], f[2],
                                  f[0]);
             });
  }
}

// A block adds to the output and the sums of an attention.
void AddBlocks(Maker& make) {
  for (int64_t d : {int64_t{6}, int64_t{64}, int64_t{100}}) {
    AttentionBlock block;
    block.shape = {2, make.Between(20, 100), 4, 2, d};
    const AttentionShape s = block.shape;
    block.query_begin = make.Between(0, s.sequence_length - 1);
    block.query_count = make.Between(1, s.sequence_length - block.query_begin);
    block.key_begin = make.Between(0, s.sequence_length - 1);
    block.key_count = make.Between(1, s.sequence_length - block.key_begin);
    const int64_t rows = s.rows(), out = rows * s.out_size();
    make.Add(
        absl::StrCat("attention block T", s.sequence_length, " D", d),
        {make.Random(rows * s.qkv_size()), make.Random(out),
         make.Random(rows * s.head_count), make.Random(out),
         make.Random(rows * s.qkv_size()), make.Random(rows * block.kv_size()),
         make.Random(rows * block.kv_size())},
        {},
        [=](auto& ops, const auto& b) {
          const auto& f = b.floats;
          ops.Attention(s, f[0], f[1], f[2]);
          ops.AttendBlock(block, f[0], f[5], f[1], f[2]);
          ops.AttendBlockBackward(block, f[0], f[5], f[1], f[2], f[3], f[4],
                                  f[6]);
        },
        3e-5);
  }
}

void AddVectors(Maker& make) {
  std::vector<int64_t> sizes = {1, 257, make.Between(2, 30'000)};
  if (!make.small()) sizes.push_back(20'000'003);
  for (int64_t n : sizes) {
    std::vector<float> squares = make.Random(n);
    for (float& value : squares) value *= value;
    make.Add(absl::StrCat("vectors ", n),
             {make.Random(n), make.Random(n), make.Random(n), make.Random(n),
              make.Random(n), squares, make.Random(n), std::vector<float>(2)},
             {}, [n](auto& ops, const auto& b) {
               const auto& f = b.floats;
               using T = ElementOf<decltype(b)>;
               ops.SetZero(n, f[6]);
               ops.Axpy(n, T(0.75), f[0], f[1]);
               ops.Sgd(n, T(0.03125), T(0.75), f[0], f[2]);
               AdamWStep<T> step;
               step.learning_rate = T(0.015625);
               step.beta1 = T(0.875);
               step.beta2 = T(0.9375);
               step.epsilon = T(0.0009765625);
               step.weight_decay = T(0.125);
               step.bias_correction1 = T(0.5);
               step.bias_correction2_sqrt = T(0.25);
               step.gradient_scale = T(0.5);
               ops.AdamW(n, step, f[0], f[3], f[4], f[5]);
               const T sums[2] = {static_cast<T>(ops.Sum(n, f[0]) / 100),
                                  static_cast<T>(ops.SumOfSquares(n, f[0]))};
               ops.FromHost(sizeof(sums), sums, f[7]);
             });
  }
}

float NearestBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

template <typename T>
struct Outcome {
  std::vector<std::vector<T>> floats;
  std::vector<std::vector<int32_t>> ints;
};

template <typename T, typename Run>
absl::Status RunCase(const OpCase& op_case, bool round, const Run& run,
                     BasicOps<T>& ops, Outcome<T>& outcome) {
  outcome.ints = op_case.ints;
  outcome.floats.clear();
  for (const auto& f : op_case.floats) {
    outcome.floats.emplace_back(f.begin(), f.end());
  }
  for (size_t i : op_case.operands) {
    if (!round) break;
    for (T& value : outcome.floats[i]) {
      value = static_cast<T>(NearestBf16(static_cast<float>(value)));
    }
  }
  OpBuffers<T> buffers;
  const auto take = [&](Arena& arena) {
    buffers = {};
    for (const auto& f : outcome.floats) {
      buffers.floats.push_back(arena.Take<T>(static_cast<int64_t>(f.size())));
    }
    for (const auto& i : outcome.ints) {
      buffers.ints.push_back(
          arena.Take<int32_t>(static_cast<int64_t>(i.size())));
    }
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  for (size_t i = 0; i < buffers.floats.size(); ++i) {
    ops.FromHost(outcome.floats[i].size() * sizeof(T), outcome.floats[i].data(),
                 buffers.floats[i]);
  }
  for (size_t i = 0; i < buffers.ints.size(); ++i) {
    ops.FromHost(outcome.ints[i].size() * sizeof(int32_t),
                 outcome.ints[i].data(), buffers.ints[i]);
  }
  run(ops, buffers);
  for (size_t i = 0; i < buffers.floats.size(); ++i) {
    ops.ToHost(outcome.floats[i].size() * sizeof(T), buffers.floats[i],
               outcome.floats[i].data());
  }
  for (size_t i = 0; i < buffers.ints.size(); ++i) {
    ops.ToHost(outcome.ints[i].size() * sizeof(int32_t), buffers.ints[i],
               outcome.ints[i].data());
  }
  return ops.status();
}

absl::Status Compare(const OpCase& op_case, const Outcome<float>& actual,
                     const Outcome<double>& expected) {
  if (actual.ints != expected.ints) {
    return absl::InternalError(absl::StrCat(
        op_case.name, ": choices, slots or sources are wrong"));
  }
  for (size_t b = 0; b < actual.floats.size(); ++b) {
    double largest = 0;
    for (double e : expected.floats[b]) {
      largest = std::max(largest, std::abs(e));
    }
    for (size_t i = 0; i < actual.floats[b].size(); ++i) {
      const double a = actual.floats[b][i], e = expected.floats[b][i];
      const double bound =
          op_case.tolerance * (std::abs(e) + 0.1 * largest + 1e-30);
      // Not a > b: a NaN must be an error.
      if (std::abs(a - e) <= bound) continue;
      return absl::InternalError(
          absl::StrCat(op_case.name, ": buffer ", b, " element ", i, " is ", a,
                       ", expected ", e, " with an error of at most ", bound));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OpCase> MakeOpCases(const OpCaseOptions& options) {
  Maker make(options);
  AddLinear(make);
  AddNorms(make);
  AddStream(make);
  AddActivations(make);
  AddRope(make);
  for (const AttentionShape& shape : AttentionShapes(make)) {
    AddAttention(make, shape, 3e-5);
  }
  AddMixture(make);
  AddEmbedding(make);
  AddLoss(make);
  AddSlices(make);
  AddBlocks(make);
  AddVectors(make);
  return std::move(make.cases);
}

std::vector<OpCase> MakeBf16Cases(const OpCaseOptions& options) {
  Maker make(options);
  AddLinear(make);
  for (const AttentionShape& shape : AttentionShapes(make)) {
    // q, k, v and dout are exact. Probabilities and their gradients are rounded
    // to 8 bits, and each sum has many of them.
    AddAttention(make, shape, 0.03).operands = {0, 3};
  }
  return std::move(make.cases);
}

absl::Status HoldOpCase(const OpCase& op_case, Ops& ops) {
  Outcome<double> expected;
  PlainOps<double> plain;
  // Operands are always rounded: any compute type keeps them.
  const bool round = !op_case.operands.empty();
  RETURN_IF_ERROR(
      RunCase<double>(op_case, round, op_case.run_f64, plain, expected));
  Outcome<float> first, second;
  RETURN_IF_ERROR(RunCase<float>(op_case, round, op_case.run_f32, ops, first));
  RETURN_IF_ERROR(RunCase<float>(op_case, round, op_case.run_f32, ops, second));
  RETURN_IF_ERROR(Compare(op_case, first, expected));
  for (size_t b = 0; b < first.floats.size(); ++b) {
    if (std::memcmp(first.floats[b].data(), second.floats[b].data(),
                    first.floats[b].size() * sizeof(float)) != 0) {
      return absl::InternalError(absl::StrCat(
          op_case.name, ": buffer ", b, " has different bits in run 2"));
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::engine
