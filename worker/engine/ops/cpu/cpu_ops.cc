#include "worker/engine/ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "worker/engine/ops/cpu/scratch.h"
#include "worker/engine/ops/cpu/thread_pool.h"

namespace atl::engine {
namespace {

// Elements of a task, on rows and on a flat vector. Sums depend on them.
constexpr int64_t kRowsATask = 64;
constexpr int64_t kElementsATask = 16384;
// Task i of an embedding's gradient has the tokens with id mod 16 == i.
constexpr int64_t kEmbeddingTasks = 16;

int64_t TaskCount(int64_t n, int64_t size) { return (n + size - 1) / size; }

// experts [k] = the k largest of n probabilities p, on ties the lower index;
// weights [k] = their probabilities divided by their sum.
void ChooseExperts(int64_t n, int64_t k, const float* p, int32_t* experts,
                   float* weights) {
  float total = 0;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; ++e) {
      if (std::find(experts, experts + j, e) != experts + j) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    experts[j] = static_cast<int32_t>(best);
    total += p[best];
  }
  for (int64_t j = 0; j < k; ++j) weights[j] = p[experts[j]] / total;
}

class CpuOps final : public Ops {
 public:
  CpuOps(int thread_count, const Kernels& kernels, ProductKind kind)
      : kernels_(kernels),
        pool_(thread_count),
        products_(kind, kernels, pool_),
        thread_scratch_(thread_count) {}

  void Linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w,
              float* y) override {
    products_.Linear(m, n, k, x, w, y);
  }
  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const float* dy,
                           const float* w, float* dx) override {
    products_.LinearBackwardInput(m, n, k, dy, w, dx);
  }
  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const float* dy,
                            const float* x, float* dw,
                            bool accumulate) override {
    products_.LinearBackwardWeight(m, n, k, dy, x, dw, accumulate);
  }
  void ParametersChanged() override { products_.ParametersChanged(); }

  void AddRmsNorm(int64_t rows, int64_t channels, float eps, const float* x,
                  const float* delta, const float* gain, float* sum, float* y,
                  float* rstd) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      const int64_t at = begin * channels;
      kernels_.add_rms_norm(
          count, channels, eps, x + at, delta != nullptr ? delta + at : nullptr,
          gain, sum != nullptr ? sum + at : nullptr, y + at, rstd + begin);
    });
  }

  void RmsNormBackward(int64_t rows, int64_t channels, const float* dy,
                       const float* s, const float* rstd, const float* gain,
                       float* ds, float* dgain, bool accumulate) override {
    const int64_t tasks = TaskCount(rows, kRowsATask);
    float* partial = float_scratch_.Get(tasks * channels);
    ForRows(rows, [&](int64_t begin, int64_t count) {
      float* mine = partial + begin / kRowsATask * channels;
      std::fill(mine, mine + channels, 0.0f);
      const int64_t at = begin * channels;
      kernels_.rms_norm_backward(count, channels, dy + at, s + at, rstd + begin,
                                 gain, ds + at, mine, accumulate);
    });
    SumTasks(tasks, channels, channels, partial, dgain, false);
  }

  void LayerNorm(int64_t rows, int64_t channels, float eps, const float* x,
                 const float* gain, const float* bias, float* y, float* mean,
                 float* rstd) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      const int64_t at = begin * channels;
      kernels_.layer_norm(count, channels, eps, x + at, gain, bias, y + at,
                          mean + begin, rstd + begin);
    });
  }

  void LayerNormBackward(int64_t rows, int64_t channels, const float* dy,
                         const float* x, const float* mean, const float* rstd,
                         const float* gain, float* dx, float* dgain,
                         float* dbias, bool accumulate) override {
    const int64_t tasks = TaskCount(rows, kRowsATask);
    // Each task's gradients of the gain, then of the bias.
    float* partial = float_scratch_.Get(tasks * 2 * channels);
    ForRows(rows, [&](int64_t begin, int64_t count) {
      float* mine = partial + begin / kRowsATask * 2 * channels;
      std::fill(mine, mine + 2 * channels, 0.0f);
      const int64_t at = begin * channels;
      kernels_.layer_norm_backward(count, channels, dy + at, x + at,
                                   mean + begin, rstd + begin, gain, dx + at,
                                   mine, mine + channels, accumulate);
    });
    SumTasks(tasks, 2 * channels, channels, partial, dgain, false);
    SumTasks(tasks, 2 * channels, channels, partial + channels, dbias, false);
  }

  void AddRows(int64_t rows, int64_t channels, const float* x,
               const float* delta, const float* bias, float* out) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        kernels_.add_row(channels, x + r * channels, delta + r * channels, bias,
                         out + r * channels);
      }
    });
  }

  void AddBias(int64_t rows, int64_t channels, const float* bias,
               float* y) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        kernels_.add(channels, bias, y + r * channels);
      }
    });
  }

  void BiasBackward(int64_t rows, int64_t channels, const float* dy,
                    float* dbias, bool accumulate) override {
    const int64_t tasks = TaskCount(rows, kRowsATask);
    float* partial = float_scratch_.Get(tasks * channels);
    ForRows(rows, [&](int64_t begin, int64_t count) {
      float* mine = partial + begin / kRowsATask * channels;
      std::copy_n(dy + begin * channels, channels, mine);
      for (int64_t r = begin + 1; r < begin + count; ++r) {
        kernels_.add(channels, dy + r * channels, mine);
      }
    });
    SumTasks(tasks, channels, channels, partial, dbias, accumulate);
  }

  void AddPositions(int64_t rows, int64_t sequence_length, int64_t channels,
                    const float* table, float* x) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        kernels_.add(channels, table + r % sequence_length * channels,
                     x + r * channels);
      }
    });
  }

  void PositionsBackward(int64_t rows, int64_t sequence_length,
                         int64_t channels, const float* dx,
                         float* dtable) override {
    // One task handles all rows of a position, so they are added in order.
    ForRows(sequence_length, [&](int64_t begin, int64_t count) {
      for (int64_t t = begin; t < begin + count; ++t) {
        for (int64_t r = t; r < rows; r += sequence_length) {
          kernels_.add(channels, dx + r * channels, dtable + t * channels);
        }
      }
    });
  }

  void Rope(const AttentionShape& shape, const float* table, bool inverse,
            float* qkv) override {
    ForRows(shape.rows(), [&](int64_t begin, int64_t count) {
      kernels_.rope(shape, table, inverse, begin, begin + count, qkv);
    });
  }

  void Attention(const AttentionShape& shape, const float* qkv, float* out,
                 float* log_sum) override {
    const int64_t scratch =
        AttentionScratchElements(shape.sequence_length, shape.head_dim);
    pool_.ParallelFor(
        shape.batch * shape.kv_head_count, [&](int64_t index, int thread) {
          AttentionTask task = MakeTask(shape, index, qkv, out, log_sum);
          task.scratch = thread_scratch_[thread].Get(scratch);
          kernels_.attention(task);
        });
  }

  void AttentionBackward(const AttentionShape& shape, const float* qkv,
                         const float* out, const float* log_sum,
                         const float* dout, float* dqkv) override {
    const int64_t scratch =
        AttentionScratchElements(shape.sequence_length, shape.head_dim);
    pool_.ParallelFor(shape.batch * shape.kv_head_count, [&](int64_t index,
                                                             int thread) {
      // The backward kernel only reads out and log_sum.
      AttentionTask task = MakeTask(shape, index, qkv, const_cast<float*>(out),
                                    const_cast<float*>(log_sum));
      task.dout = dout + (task.out - out);
      task.dq = dqkv + (task.q - qkv);
      task.dk = dqkv + (task.k - qkv);
      task.dv = dqkv + (task.v - qkv);
      task.scratch = thread_scratch_[thread].Get(scratch);
      kernels_.attention_backward(task);
    });
  }

  void SwiGlu(int64_t rows, int64_t inner, const float* gate_up,
              float* y) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      kernels_.swiglu(count, inner, gate_up + begin * 2 * inner,
                      y + begin * inner);
    });
  }

  void SwiGluBackward(int64_t rows, int64_t inner, const float* gate_up,
                      const float* dy, float* dgate_up) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      kernels_.swiglu_backward(count, inner, gate_up + begin * 2 * inner,
                               dy + begin * inner,
                               dgate_up + begin * 2 * inner);
    });
  }

  void Gelu(int64_t n, const float* x, float* y) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      kernels_.gelu(count, x + begin, y + begin);
    });
  }

  void GeluBackward(int64_t n, const float* x, const float* dy,
                    float* dx) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      kernels_.gelu_backward(count, x + begin, dy + begin, dx + begin);
    });
  }

  void Route(const RouteShape& shape, const float* logits, float* probabilities,
             int32_t* experts, float* weights) override {
    const int64_t n = shape.expert_count, k = shape.experts_per_token;
    ForRows(shape.rows, [&](int64_t begin, int64_t count) {
      kernels_.softmax(count, n, logits + begin * n, probabilities + begin * n);
      for (int64_t r = begin; r < begin + count; ++r) {
        ChooseExperts(n, k, probabilities + r * n, experts + r * k,
                      weights + r * k);
      }
    });
  }

  void RouteBackward(const RouteShape& shape, const float* probabilities,
                     const int32_t* experts, const float* weights,
                     const float* dweights, const float* balance,
                     float* dlogits) override {
    const int64_t n = shape.expert_count, k = shape.experts_per_token;
    ForRows(shape.rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        const float* p = probabilities + r * n;
        float* d = dlogits + r * n;  // First the gradient of the probabilities.
        std::copy_n(balance, n, d);
        float mean = 0, total = 0;
        for (int64_t j = r * k; j < (r + 1) * k; ++j) {
          mean += weights[j] * dweights[j];
          total += p[experts[j]];
        }
        for (int64_t j = r * k; j < (r + 1) * k; ++j) {
          d[experts[j]] += (dweights[j] - mean) / total;
        }
        float inner = 0;
        for (int64_t e = 0; e < n; ++e) inner += p[e] * d[e];
        for (int64_t e = 0; e < n; ++e) d[e] = p[e] * (d[e] - inner);
      }
    });
  }

  void AddRouteTotals(const RouteShape& shape, const float* probabilities,
                      const int32_t* experts, float* counts,
                      float* sums) override {
    for (int64_t i = 0; i < shape.rows * shape.experts_per_token; ++i) {
      counts[experts[i]] += 1.0f;
    }
    BiasBackward(shape.rows, shape.expert_count, probabilities, sums, true);
  }

  void CountChoices(const RouteShape& shape, const int32_t* experts,
                    float* counts) override {
    const int64_t n = shape.expert_count;
    const int64_t of_group = shape.group_rows * shape.experts_per_token;
    std::fill_n(counts, shape.group_count() * n, 0.0f);
    for (int64_t g = 0; g < shape.group_count(); ++g) {
      for (int64_t i = g * of_group; i < (g + 1) * of_group; ++i) {
        counts[g * n + experts[i]] += 1.0f;
      }
    }
  }

  void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                    const float* before, int32_t* slots, int32_t* sources,
                    int64_t* begins) override {
    int64_t* const next = index_scratch_.Get(shape.expert_count);
    const int64_t n = shape.expert_count;
    const int64_t choices = shape.rows * shape.experts_per_token;
    const int64_t of_group = shape.group_rows * shape.experts_per_token;
    std::fill_n(begins, n + 1, 0);
    // Marks kept choices, row by row. `next` counts the choices of a group.
    for (int64_t g = 0; g < shape.group_count(); ++g) {
      for (int64_t e = 0; e < n; ++e) {
        next[e] =
            before == nullptr ? 0 : static_cast<int64_t>(before[g * n + e]);
      }
      for (int64_t i = g * of_group; i < (g + 1) * of_group; ++i) {
        const int32_t e = experts[i];
        slots[i] = next[e]++ < shape.capacity ? 0 : -1;
        if (slots[i] == 0) ++begins[e + 1];
      }
    }
    for (int64_t e = 0; e < n; ++e) {
      next[e] = begins[e];
      begins[e + 1] += begins[e];
    }
    for (int64_t i = 0; i < choices; ++i) {
      if (slots[i] < 0) continue;
      const int64_t slot = next[experts[i]]++;
      slots[i] = static_cast<int32_t>(slot);
      sources[slot] = static_cast<int32_t>(i / shape.experts_per_token);
    }
  }

  void GatherRows(int64_t count, int64_t channels, const int32_t* sources,
                  const float* x, float* out) override {
    ForRows(count, [&](int64_t begin, int64_t rows) {
      for (int64_t i = begin; i < begin + rows; ++i) {
        std::copy_n(x + sources[i] * channels, channels, out + i * channels);
      }
    });
  }

  void CombineRows(const RouteShape& shape, int64_t channels,
                   const int32_t* slots, const float* weights, const float* y,
                   float* out) override {
    const int64_t k = shape.experts_per_token;
    ForRows(shape.rows, [&](int64_t begin, int64_t count) {
      std::fill_n(out + begin * channels, count * channels, 0.0f);
      for (int64_t i = begin * k; i < (begin + count) * k; ++i) {
        if (slots[i] < 0) continue;
        kernels_.fused_axpy(channels, weights != nullptr ? weights[i] : 1.0f,
                            y + slots[i] * channels, out + i / k * channels);
      }
    });
  }

  void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const float* weights,
                           const float* y, const float* dout, float* dy,
                           float* dweights) override {
    const int64_t k = shape.experts_per_token;
    ForRows(shape.rows, [&](int64_t begin, int64_t count) {
      for (int64_t i = begin * k; i < (begin + count) * k; ++i) {
        dweights[i] = 0.0f;
        if (slots[i] < 0) continue;
        const float* d = dout + i / k * channels;
        const int64_t at = slots[i] * channels;
        dweights[i] = kernels_.dot(channels, d, y + at);
        kernels_.scale(channels, weights[i], d, dy + at);
      }
    });
  }

  void Embedding(int64_t rows, int64_t first, int64_t ids, int64_t channels,
                 const int32_t* tokens, const float* table,
                 float* out) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        const int64_t id = tokens[r] - first;
        float* to = out + r * channels;
        if (id >= 0 && id < ids) {
          std::copy_n(table + id * channels, channels, to);
        } else {
          std::fill_n(to, channels, 0.0f);
        }
      }
    });
  }

  void EmbeddingBackward(int64_t rows, int64_t first, int64_t ids,
                         int64_t channels, const int32_t* tokens,
                         const float* dout, float* dtable) override {
    pool_.ParallelFor(kEmbeddingTasks, [&](int64_t task, int) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t id = tokens[r] - first;
        if (id < 0 || id >= ids || id % kEmbeddingTasks != task) continue;
        kernels_.add(channels, dout + r * channels, dtable + id * channels);
      }
    });
  }

  void CrossEntropy(int64_t rows, int64_t vocab, const float* logits,
                    const int32_t* targets, float* losses) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      kernels_.cross_entropy(count, vocab, logits + begin * vocab,
                             targets + begin, losses + begin);
    });
  }

  void CrossEntropyBackward(int64_t rows, int64_t vocab, float scale,
                            float* logits, const int32_t* targets,
                            float* losses) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      kernels_.cross_entropy_backward(count, vocab, scale,
                                      logits + begin * vocab, targets + begin,
                                      losses + begin);
    });
  }

  void CopyColumns(int64_t rows, int64_t columns, const float* from,
                   int64_t from_stride, float* to, int64_t to_stride) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        std::copy_n(from + r * from_stride, columns, to + r * to_stride);
      }
    });
  }

  void LogitTops(int64_t rows, int64_t n, const float* logits,
                 float* tops) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        tops[r] = kernels_.max_of(n, logits + r * n);
      }
    });
  }

  void LogitSums(int64_t rows, int64_t first, int64_t n, const float* logits,
                 const int32_t* targets, const float* tops, float* sums,
                 float* target_logits) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        const int64_t target = targets[r] - first;
        sums[r] = kernels_.sum_exp(n, logits + r * n, tops[r]);
        target_logits[r] =
            target >= 0 && target < n ? logits[r * n + target] : 0.0f;
      }
    });
  }

  void LogitLosses(int64_t rows, const float* tops, const float* sums,
                   const float* target_logits, float* losses) override {
    for (int64_t r = 0; r < rows; ++r) {
      losses[r] = std::log(sums[r]) + (tops[r] - target_logits[r]);
    }
  }

  void LogitGradients(int64_t rows, int64_t first, int64_t n, float scale,
                      const int32_t* targets, const float* tops,
                      const float* sums, float* logits) override {
    ForRows(rows, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        const int64_t target = targets[r] - first;
        kernels_.scaled_exp(n, tops[r], scale / sums[r], logits + r * n);
        if (target >= 0 && target < n) logits[r * n + target] -= scale;
      }
    });
  }

  void AttendBlock(const AttentionBlock& block, const float* qkv,
                   const float* keys_values, float* out,
                   float* log_sum) override {
    ForBlocks(block, qkv, keys_values, out, log_sum,
              [&](AttentionTask& task) { kernels_.attend_block(task); });
  }

  void AttendBlockBackward(const AttentionBlock& block, const float* qkv,
                           const float* keys_values, const float* out,
                           const float* log_sum, const float* dout, float* dqkv,
                           float* dkeys_values) override {
    // The backward kernel only reads out and log_sum.
    ForBlocks(block, qkv, keys_values, const_cast<float*>(out),
              const_cast<float*>(log_sum), [&](AttentionTask& task) {
                task.dout = dout + (task.out - out);
                task.dq = dqkv + (task.q - qkv);
                task.dk = dkeys_values + (task.k - keys_values);
                task.dv = dkeys_values + (task.v - keys_values);
                kernels_.attend_block_backward(task);
              });
  }

  void SetZero(int64_t n, float* x) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      std::fill(x + begin, x + begin + count, 0.0f);
    });
  }

  void Axpy(int64_t n, float alpha, const float* x, float* y) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      kernels_.axpy(count, alpha, x + begin, y + begin);
    });
  }

  double Sum(int64_t n, const float* x) override {
    return Reduce(n, x, kernels_.sum);
  }

  double SumOfSquares(int64_t n, const float* x) override {
    return Reduce(n, x, kernels_.sum_of_squares);
  }

  void Sgd(int64_t n, float learning_rate, float gradient_scale, const float* g,
           float* p) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      kernels_.sgd(count, learning_rate, gradient_scale, g + begin, p + begin);
    });
  }

  void AdamW(int64_t n, const AdamWStep<float>& step, const float* g, float* p,
             float* m, float* v) override {
    ForElements(n, [&](int64_t begin, int64_t count) {
      kernels_.adamw(count, step, g + begin, p + begin, m + begin, v + begin);
    });
  }

 private:
  template <typename F>
  void ForRuns(int64_t n, int64_t size, const F& f) {
    pool_.ParallelFor(TaskCount(n, size), [&](int64_t task, int) {
      f(task * size, std::min(size, n - task * size));
    });
  }
  template <typename F>
  void ForRows(int64_t rows, const F& f) {
    ForRuns(rows, kRowsATask, f);
  }
  template <typename F>
  void ForElements(int64_t n, const F& f) {
    ForRuns(n, kElementsATask, f);
  }

  // out [n] = sum over tasks of partial[task, 0..n), in order, added to out if
  // `accumulate`. A task has `stride` elements.
  void SumTasks(int64_t tasks, int64_t stride, int64_t n, const float* partial,
                float* out, bool accumulate) {
    if (!accumulate) std::copy_n(partial, n, out);
    for (int64_t task = accumulate ? 0 : 1; task < tasks; ++task) {
      kernels_.add(n, partial + task * stride, out);
    }
  }

  double Reduce(int64_t n, const float* x,
                double (*kernel)(int64_t n, const float* x)) {
    const int64_t tasks = TaskCount(n, kElementsATask);
    double* partial = double_scratch_.Get(tasks);
    ForElements(n, [&](int64_t begin, int64_t count) {
      partial[begin / kElementsATask] = kernel(count, x + begin);
    });
    double sum = 0;
    for (int64_t task = 0; task < tasks; ++task) sum += partial[task];
    return sum;
  }

  template <typename F>
  void ForBlocks(const AttentionBlock& block, const float* qkv,
                 const float* keys_values, float* out, float* log_sum,
                 const F& f) {
    const AttentionShape& s = block.shape;
    const int64_t scratch = AttentionScratchElements(
        std::max(block.query_count, block.key_count), s.head_dim);
    pool_.ParallelFor(
        s.batch * s.kv_head_count, [&](int64_t index, int thread) {
          AttentionTask task = MakeTask(s, index, qkv, out, log_sum);
          const int64_t b = index / s.kv_head_count;
          const int64_t kv_head = index % s.kv_head_count;
          task.key_count = block.key_count;
          task.query_count = block.query_count;
          task.kv_stride = block.kv_size();
          task.q += block.query_begin * task.qkv_stride;
          task.out += block.query_begin * task.out_stride;
          task.log_sum += block.query_begin;
          task.k = keys_values +
                   (b * s.sequence_length + block.key_begin) * task.kv_stride +
                   kv_head * s.head_dim;
          task.v = task.k + s.kv_head_count * s.head_dim;
          task.scratch = thread_scratch_[thread].Get(scratch);
          f(task);
        });
  }

  const Kernels& kernels_;
  ThreadPool pool_;
  Products products_;
  Scratch<float> float_scratch_;
  Scratch<double> double_scratch_;
  Scratch<int64_t> index_scratch_;
  std::vector<Scratch<float>> thread_scratch_;
};

}  // namespace

std::unique_ptr<Ops> MakeCpuOps(int thread_count, ComputeType compute) {
  return MakeCpuOps(
      thread_count, BestKernels(),
      compute == ComputeType::kBf16 ? BestBf16Products() : ProductKind::kF32);
}

std::unique_ptr<Ops> MakeCpuOps(int thread_count, const Kernels& kernels,
                                ProductKind kind) {
  return std::make_unique<CpuOps>(thread_count, kernels, kind);
}

}  // namespace atl::engine
