#include "worker/engine/ops/plain_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "worker/engine/ops/ops.h"

namespace atl::engine {
namespace {

// One head of one sequence inside qkv, out or their gradients.
template <typename T>
struct HeadView {
  T* data;
  int64_t row_stride;
  T* row(int64_t t) const { return data + t * row_stride; }
};

// Index of a head among the H + 2 G heads of a qkv row.
template <typename T>
HeadView<T> QkvHead(const AttentionShape& s, T* qkv, int64_t batch,
                    int64_t head) {
  return {qkv + batch * s.sequence_length * s.qkv_size() + head * s.head_dim,
          s.qkv_size()};
}

template <typename T>
HeadView<T> OutHead(const AttentionShape& s, T* out, int64_t batch,
                    int64_t head) {
  return {out + batch * s.sequence_length * s.out_size() + head * s.head_dim,
          s.out_size()};
}

template <typename T>
T Dot(int64_t n, const T* a, const T* b) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T>
T AttentionScale(const AttentionShape& s) {
  return T(1) / std::sqrt(static_cast<T>(s.head_dim));
}

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

template <typename T>
T GeluSigmoid(T x) {
  return Sigmoid(T(2 * kGeluScale) * (x + T(kGeluCube) * x * x * x));
}

template <typename T>
T LogSumExp(int64_t n, const T* x) {
  const T top = *std::max_element(x, x + n);
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

}  // namespace

template <typename T>
void PlainOps<T>::Linear(int64_t m, int64_t n, int64_t k, const T* x,
                         const T* w, T* y) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = Dot(k, x + i * k, w + j * k);
  }
}

template <typename T>
void PlainOps<T>::LinearBackwardInput(int64_t m, int64_t n, int64_t k,
                                      const T* dy, const T* w, T* dx) {
  std::fill(dx, dx + m * k, T(0));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < k; ++c) {
        dx[i * k + c] += dy[i * n + j] * w[j * k + c];
      }
    }
  }
}

template <typename T>
void PlainOps<T>::LinearBackwardWeight(int64_t m, int64_t n, int64_t k,
                                       const T* dy, const T* x, T* dw,
                                       bool accumulate) {
  if (!accumulate) std::fill(dw, dw + n * k, T(0));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < k; ++c) {
        dw[j * k + c] += dy[i * n + j] * x[i * k + c];
      }
    }
  }
}

template <typename T>
void PlainOps<T>::AddRmsNorm(int64_t rows, int64_t channels, T eps, const T* x,
                             const T* delta, const T* gain, T* sum, T* y,
                             T* rstd) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = r * channels;
    auto value = [&](int64_t c) {
      return delta != nullptr ? x[row + c] + delta[row + c] : x[row + c];
    };
    T squares = 0;
    for (int64_t c = 0; c < channels; ++c) squares += value(c) * value(c);
    rstd[r] = T(1) / std::sqrt(squares / static_cast<T>(channels) + eps);
    for (int64_t c = 0; c < channels; ++c) {
      const T s = value(c);
      y[row + c] = s * rstd[r] * gain[c];
      if (sum != nullptr) sum[row + c] = s;
    }
  }
}

template <typename T>
void PlainOps<T>::RmsNormBackward(int64_t rows, int64_t channels, const T* dy,
                                  const T* s, const T* rstd, const T* gain,
                                  T* ds, T* dgain, bool accumulate) {
  std::fill(dgain, dgain + channels, T(0));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = r * channels;
    T mean = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const T n = s[row + c] * rstd[r];
      mean += dy[row + c] * gain[c] * n;
      dgain[c] += dy[row + c] * n;
    }
    mean /= static_cast<T>(channels);
    for (int64_t c = 0; c < channels; ++c) {
      const T n = s[row + c] * rstd[r];
      const T value = rstd[r] * (dy[row + c] * gain[c] - n * mean);
      ds[row + c] = accumulate ? ds[row + c] + value : value;
    }
  }
}

template <typename T>
void PlainOps<T>::LayerNorm(int64_t rows, int64_t channels, T eps, const T* x,
                            const T* gain, const T* bias, T* y, T* mean,
                            T* rstd) {
  const T count = static_cast<T>(channels);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * channels;
    T total = 0, squares = 0;
    for (int64_t c = 0; c < channels; ++c) total += in[c];
    mean[r] = total / count;
    for (int64_t c = 0; c < channels; ++c) {
      squares += (in[c] - mean[r]) * (in[c] - mean[r]);
    }
    rstd[r] = T(1) / std::sqrt(squares / count + eps);
    for (int64_t c = 0; c < channels; ++c) {
      y[r * channels + c] = (in[c] - mean[r]) * rstd[r] * gain[c] + bias[c];
    }
  }
}

template <typename T>
void PlainOps<T>::LayerNormBackward(int64_t rows, int64_t channels, const T* dy,
                                    const T* x, const T* mean, const T* rstd,
                                    const T* gain, T* dx, T* dgain, T* dbias,
                                    bool accumulate) {
  const T count = static_cast<T>(channels);
  std::fill(dgain, dgain + channels, T(0));
  std::fill(dbias, dbias + channels, T(0));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = r * channels;
    auto normed = [&](int64_t c) { return (x[row + c] - mean[r]) * rstd[r]; };
    T mean_h = 0, mean_hn = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const T h = dy[row + c] * gain[c];
      mean_h += h / count;
      mean_hn += h * normed(c) / count;
      dgain[c] += dy[row + c] * normed(c);
      dbias[c] += dy[row + c];
    }
    for (int64_t c = 0; c < channels; ++c) {
      const T value =
          rstd[r] * (dy[row + c] * gain[c] - mean_h - normed(c) * mean_hn);
      dx[row + c] = accumulate ? dx[row + c] + value : value;
    }
  }
}

template <typename T>
void PlainOps<T>::AddRows(int64_t rows, int64_t channels, const T* x,
                          const T* delta, const T* bias, T* out) {
  for (int64_t i = 0; i < rows * channels; ++i) {
    out[i] =
        x[i] + (bias != nullptr ? delta[i] + bias[i % channels] : delta[i]);
  }
}

template <typename T>
void PlainOps<T>::AddBias(int64_t rows, int64_t channels, const T* bias, T* y) {
  for (int64_t i = 0; i < rows * channels; ++i) y[i] += bias[i % channels];
}

template <typename T>
void PlainOps<T>::BiasBackward(int64_t rows, int64_t channels, const T* dy,
                               T* dbias, bool accumulate) {
  if (!accumulate) std::fill(dbias, dbias + channels, T(0));
  for (int64_t i = 0; i < rows * channels; ++i) dbias[i % channels] += dy[i];
}

template <typename T>
void PlainOps<T>::AddPositions(int64_t rows, int64_t sequence_length,
                               int64_t channels, const T* table, T* x) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* position = table + r % sequence_length * channels;
    for (int64_t c = 0; c < channels; ++c) x[r * channels + c] += position[c];
  }
}

template <typename T>
void PlainOps<T>::PositionsBackward(int64_t rows, int64_t sequence_length,
                                    int64_t channels, const T* dx, T* dtable) {
  for (int64_t r = 0; r < rows; ++r) {
    T* position = dtable + r % sequence_length * channels;
    for (int64_t c = 0; c < channels; ++c) position[c] += dx[r * channels + c];
  }
}

template <typename T>
void PlainOps<T>::Rope(const AttentionShape& s, const T* table, bool inverse,
                       T* qkv) {
  const int64_t half = s.head_dim / 2;
  for (int64_t r = 0; r < s.rows(); ++r) {
    const T* cosines = table + (r % s.sequence_length) * s.head_dim;
    const T* sines = cosines + half;
    for (int64_t h = 0; h < s.head_count + s.kv_head_count; ++h) {
      T* z = qkv + r * s.qkv_size() + h * s.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const T a = z[i], b = z[i + half];
        const T sine = inverse ? -sines[i] : sines[i];
        z[i] = a * cosines[i] - b * sine;
        z[i + half] = b * cosines[i] + a * sine;
      }
    }
  }
}

template <typename T>
void PlainOps<T>::Attention(const AttentionShape& s, const T* qkv, T* out,
                            T* log_sum) {
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::vector<T> scores(s.sequence_length);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const auto q = QkvHead(s, qkv, b, h);
      const auto k = QkvHead(s, qkv, b, s.head_count + h / group);
      const auto v =
          QkvHead(s, qkv, b, s.head_count + s.kv_head_count + h / group);
      const auto o = OutHead(s, out, b, h);
      for (int64_t t = 0; t < s.sequence_length; ++t) {
        for (int64_t u = 0; u <= t; ++u) {
          scores[u] = scale * Dot(s.head_dim, q.row(t), k.row(u));
        }
        const T log_total = LogSumExp(t + 1, scores.data());
        log_sum[(b * s.head_count + h) * s.sequence_length + t] = log_total;
        std::fill(o.row(t), o.row(t) + s.head_dim, T(0));
        for (int64_t u = 0; u <= t; ++u) {
          const T p = std::exp(scores[u] - log_total);
          for (int64_t d = 0; d < s.head_dim; ++d) {
            o.row(t)[d] += p * v.row(u)[d];
          }
        }
      }
    }
  }
}

template <typename T>
void PlainOps<T>::AttentionBackward(const AttentionShape& s, const T* qkv,
                                    const T* out, const T* log_sum,
                                    const T* dout, T* dqkv) {
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::fill(dqkv, dqkv + s.rows() * s.qkv_size(), T(0));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const int64_t key_head = s.head_count + h / group;
      const int64_t value_head = key_head + s.kv_head_count;
      const auto q = QkvHead(s, qkv, b, h), k = QkvHead(s, qkv, b, key_head);
      const auto v = QkvHead(s, qkv, b, value_head);
      const auto dq = QkvHead(s, dqkv, b, h);
      const auto dk = QkvHead(s, dqkv, b, key_head);
      const auto dv = QkvHead(s, dqkv, b, value_head);
      const auto o = OutHead(s, out, b, h), d_o = OutHead(s, dout, b, h);
      const T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t t = 0; t < s.sequence_length; ++t) {
        const T mean = Dot(s.head_dim, d_o.row(t), o.row(t));
        for (int64_t u = 0; u <= t; ++u) {
          const T score = scale * Dot(s.head_dim, q.row(t), k.row(u));
          const T p = std::exp(score - sums[t]);
          const T dp = Dot(s.head_dim, d_o.row(t), v.row(u));
          const T dscore = p * (dp - mean) * scale;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            dv.row(u)[d] += p * d_o.row(t)[d];
            dq.row(t)[d] += dscore * k.row(u)[d];
            dk.row(u)[d] += dscore * q.row(t)[d];
          }
        }
      }
    }
  }
}

template <typename T>
void PlainOps<T>::SwiGlu(int64_t rows, int64_t inner, const T* gate_up, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = gate_up + r * 2 * inner;
    const T* up = gate + inner;
    for (int64_t i = 0; i < inner; ++i) {
      y[r * inner + i] = gate[i] * Sigmoid(gate[i]) * up[i];
    }
  }
}

template <typename T>
void PlainOps<T>::SwiGluBackward(int64_t rows, int64_t inner, const T* gate_up,
                                 const T* dy, T* dgate_up) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = gate_up + r * 2 * inner;
    const T* up = gate + inner;
    T* dgate = dgate_up + r * 2 * inner;
    T* dup = dgate + inner;
    for (int64_t i = 0; i < inner; ++i) {
      const T g = gate[i], u = up[i], d = dy[r * inner + i];
      const T sigmoid = Sigmoid(g);
      dgate[i] = d * u * sigmoid * (T(1) + g * (T(1) - sigmoid));
      dup[i] = d * g * sigmoid;
    }
  }
}

template <typename T>
void PlainOps<T>::Gelu(int64_t n, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * GeluSigmoid(x[i]);
}

template <typename T>
void PlainOps<T>::GeluBackward(int64_t n, const T* x, const T* dy, T* dx) {
  for (int64_t i = 0; i < n; ++i) {
    const T sigmoid = GeluSigmoid(x[i]);
    const T slope = T(2 * kGeluScale) * (T(1) + T(3 * kGeluCube) * x[i] * x[i]);
    dx[i] = dy[i] * (sigmoid + x[i] * sigmoid * (T(1) - sigmoid) * slope);
  }
}

template <typename T>
void PlainOps<T>::Route(const RouteShape& shape, const T* logits,
                        T* probabilities, int32_t* experts, T* weights) {
  const int64_t n = shape.expert_count, k = shape.experts_per_token;
  for (int64_t r = 0; r < shape.rows; ++r) {
    const T log_total = LogSumExp(n, logits + r * n);
    T* p = probabilities + r * n;
    for (int64_t e = 0; e < n; ++e)
      p[e] = std::exp(logits[r * n + e] - log_total);
    T total = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t* chosen = experts + r * k;
      int64_t best = -1;
      for (int64_t e = 0; e < n; ++e) {
        if (std::find(chosen, chosen + j, e) != chosen + j) continue;
        if (best < 0 || p[e] > p[best]) best = e;
      }
      experts[r * k + j] = static_cast<int32_t>(best);
      total += p[best];
    }
    for (int64_t j = 0; j < k; ++j) {
      weights[r * k + j] = p[experts[r * k + j]] / total;
    }
  }
}

template <typename T>
void PlainOps<T>::RouteBackward(const RouteShape& shape, const T* probabilities,
                                const int32_t* experts, const T* weights,
                                const T* dweights, const T* balance,
                                T* dlogits) {
  const int64_t n = shape.expert_count, k = shape.experts_per_token;
  std::vector<T> dp(n);
  for (int64_t r = 0; r < shape.rows; ++r) {
    const T* p = probabilities + r * n;
    std::copy(balance, balance + n, dp.begin());
    const T mean = Dot(k, weights + r * k, dweights + r * k);
    T total = 0;
    for (int64_t j = 0; j < k; ++j) total += p[experts[r * k + j]];
    for (int64_t j = 0; j < k; ++j) {
      dp[experts[r * k + j]] += (dweights[r * k + j] - mean) / total;
    }
    const T inner = Dot(n, p, dp.data());
    for (int64_t e = 0; e < n; ++e) dlogits[r * n + e] = p[e] * (dp[e] - inner);
  }
}

template <typename T>
void PlainOps<T>::AddRouteTotals(const RouteShape& shape,
                                 const T* probabilities, const int32_t* experts,
                                 T* counts, T* sums) {
  const int64_t n = shape.expert_count;
  for (int64_t i = 0; i < shape.rows * shape.experts_per_token; ++i) {
    counts[experts[i]] += T(1);
  }
  for (int64_t i = 0; i < shape.rows * n; ++i) sums[i % n] += probabilities[i];
}

template <typename T>
void PlainOps<T>::CountChoices(const RouteShape& shape, const int32_t* experts,
                               T* counts) {
  const int64_t n = shape.expert_count;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  std::fill(counts, counts + shape.group_count() * n, T(0));
  for (int64_t i = 0; i < shape.rows * shape.experts_per_token; ++i) {
    counts[i / of_group * n + experts[i]] += T(1);
  }
}

template <typename T>
void PlainOps<T>::PlanDispatch(const RouteShape& shape, const int32_t* experts,
                               const T* before, int32_t* slots,
                               int32_t* sources, int64_t* begins) {
  const int64_t n = shape.expert_count;
  const int64_t choices = shape.rows * shape.experts_per_token;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  int64_t slot = 0;
  for (int64_t e = 0; e < n; ++e) {
    begins[e] = slot;
    int64_t chosen = 0;  // In this group, and before it.
    for (int64_t i = 0; i < choices; ++i) {
      if (i % of_group == 0) {
        chosen = before == nullptr
                     ? 0
                     : static_cast<int64_t>(before[i / of_group * n + e]);
      }
      if (experts[i] != e) continue;
      const bool kept = chosen++ < shape.capacity;
      slots[i] = kept ? static_cast<int32_t>(slot) : -1;
      if (kept) {
        sources[slot++] = static_cast<int32_t>(i / shape.experts_per_token);
      }
    }
  }
  begins[shape.expert_count] = slot;
}

template <typename T>
void PlainOps<T>::GatherRows(int64_t count, int64_t channels,
                             const int32_t* sources, const T* x, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T* row = x + sources[i] * channels;
    std::copy(row, row + channels, out + i * channels);
  }
}

template <typename T>
void PlainOps<T>::CombineRows(const RouteShape& shape, int64_t channels,
                              const int32_t* slots, const T* weights,
                              const T* y, T* out) {
  const int64_t k = shape.experts_per_token;
  std::fill(out, out + shape.rows * channels, T(0));
  for (int64_t i = 0; i < shape.rows * k; ++i) {
    if (slots[i] < 0) continue;
    const T weight = weights != nullptr ? weights[i] : T(1);
    for (int64_t c = 0; c < channels; ++c) {
      out[i / k * channels + c] += weight * y[slots[i] * channels + c];
    }
  }
}

template <typename T>
void PlainOps<T>::CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                      const int32_t* slots, const T* weights,
                                      const T* y, const T* dout, T* dy,
                                      T* dweights) {
  const int64_t k = shape.experts_per_token;
  for (int64_t i = 0; i < shape.rows * k; ++i) {
    dweights[i] = T(0);
    if (slots[i] < 0) continue;
    const T* d = dout + i / k * channels;
    dweights[i] = Dot(channels, d, y + slots[i] * channels);
    for (int64_t c = 0; c < channels; ++c) {
      dy[slots[i] * channels + c] = weights[i] * d[c];
    }
  }
}

template <typename T>
void PlainOps<T>::Embedding(int64_t rows, int64_t channels,
                            const int32_t* tokens, const T* table, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* source = table + int64_t{tokens[r]} * channels;
    std::copy(source, source + channels, out + r * channels);
  }
}

template <typename T>
void PlainOps<T>::EmbeddingBackward(int64_t rows, int64_t vocab,
                                    int64_t channels, const int32_t* tokens,
                                    const T* dout, T* dtable) {
  for (int64_t r = 0; r < rows; ++r) {
    T* target = dtable + int64_t{tokens[r]} * channels;
    for (int64_t c = 0; c < channels; ++c) target[c] += dout[r * channels + c];
  }
}

template <typename T>
void PlainOps<T>::CrossEntropy(int64_t rows, int64_t vocab, const T* logits,
                               const int32_t* targets, T* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * vocab;
    losses[r] = LogSumExp(vocab, row) - row[targets[r]];
  }
}

template <typename T>
void PlainOps<T>::CrossEntropyBackward(int64_t rows, int64_t vocab, T scale,
                                       T* logits, const int32_t* targets,
                                       T* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * vocab;
    const T log_total = LogSumExp(vocab, row);
    losses[r] = log_total - row[targets[r]];
    for (int64_t i = 0; i < vocab; ++i) {
      row[i] = scale * std::exp(row[i] - log_total);
    }
    row[targets[r]] -= scale;
  }
}

template <typename T>
void PlainOps<T>::CopyColumns(int64_t rows, int64_t columns, const T* from,
                              int64_t from_stride, T* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * from_stride, columns, to + r * to_stride);
  }
}

template <typename T>
void PlainOps<T>::EmbeddingSlice(int64_t rows, int64_t begin, int64_t count,
                                 int64_t channels, const int32_t* tokens,
                                 const T* table, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t id = tokens[r] - begin;
    if (id >= 0 && id < count) {
      std::copy_n(table + id * channels, channels, out + r * channels);
    } else {
      std::fill_n(out + r * channels, channels, T(0));
    }
  }
}

template <typename T>
void PlainOps<T>::EmbeddingSliceBackward(int64_t rows, int64_t begin,
                                         int64_t count, int64_t channels,
                                         const int32_t* tokens, const T* dout,
                                         T* dtable) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t id = tokens[r] - begin;
    if (id < 0 || id >= count) continue;
    T* target = dtable + id * channels;
    for (int64_t c = 0; c < channels; ++c) target[c] += dout[r * channels + c];
  }
}

template <typename T>
void PlainOps<T>::LogitTops(int64_t rows, int64_t count, const T* logits,
                            T* tops) {
  for (int64_t r = 0; r < rows; ++r) {
    tops[r] = *std::max_element(logits + r * count, logits + (r + 1) * count);
  }
}

template <typename T>
void PlainOps<T>::LogitSums(int64_t rows, int64_t begin, int64_t count,
                            const T* logits, const int32_t* targets,
                            const T* tops, T* sums, T* target_logits) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * count;
    const int64_t target = targets[r] - begin;
    sums[r] = 0;
    for (int64_t i = 0; i < count; ++i) sums[r] += std::exp(row[i] - tops[r]);
    target_logits[r] = target >= 0 && target < count ? row[target] : T(0);
  }
}

template <typename T>
void PlainOps<T>::LogitLosses(int64_t rows, const T* tops, const T* sums,
                              const T* target_logits, T* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    losses[r] = tops[r] + std::log(sums[r]) - target_logits[r];
  }
}

template <typename T>
void PlainOps<T>::LogitGradients(int64_t rows, int64_t begin, int64_t count,
                                 T scale, const int32_t* targets, const T* tops,
                                 const T* sums, T* logits) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * count;
    for (int64_t i = 0; i < count; ++i) {
      row[i] = scale * (std::exp(row[i] - tops[r]) / sums[r]);
    }
    const int64_t target = targets[r] - begin;
    if (target >= 0 && target < count) row[target] -= scale;
  }
}

// Head `head` of the 2 G in rows of keys and values, from the block's first.
template <typename T>
HeadView<T> KvHead(const AttentionBlock& block, T* keys_values, int64_t batch,
                   int64_t head) {
  const AttentionShape& s = block.shape;
  return {keys_values +
              (batch * s.sequence_length + block.key_begin) * block.kv_size() +
              head * s.head_dim,
          block.kv_size()};
}

template <typename T>
void PlainOps<T>::AttendBlock(const AttentionBlock& block, const T* qkv,
                              const T* keys_values, T* out, T* log_sum) {
  const AttentionShape& s = block.shape;
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  std::vector<T> scores(block.key_count);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const auto q = QkvHead(s, qkv, b, h), o = OutHead(s, out, b, h);
      const auto k = KvHead(block, keys_values, b, h / group);
      const auto v = KvHead(block, keys_values, b, s.kv_head_count + h / group);
      T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t i = 0; i < block.query_count; ++i) {
        const int64_t t = block.query_begin + i;
        for (int64_t u = 0; u < block.key_count; ++u) {
          scores[u] = scale * Dot(s.head_dim, q.row(t), k.row(u));
        }
        const T logs[2] = {sums[t], LogSumExp(block.key_count, scores.data())};
        const T log_total = LogSumExp(2, logs);
        const T kept = std::exp(sums[t] - log_total);
        for (int64_t d = 0; d < s.head_dim; ++d) o.row(t)[d] *= kept;
        for (int64_t u = 0; u < block.key_count; ++u) {
          const T p = std::exp(scores[u] - log_total);
          for (int64_t d = 0; d < s.head_dim; ++d) {
            o.row(t)[d] += p * v.row(u)[d];
          }
        }
        sums[t] = log_total;
      }
    }
  }
}

template <typename T>
void PlainOps<T>::AttendBlockBackward(const AttentionBlock& block, const T* qkv,
                                      const T* keys_values, const T* out,
                                      const T* log_sum, const T* dout, T* dqkv,
                                      T* dkeys_values) {
  const AttentionShape& s = block.shape;
  const T scale = AttentionScale<T>(s);
  const int64_t group = s.head_count / s.kv_head_count;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.head_count; ++h) {
      const int64_t key_head = h / group;
      const int64_t value_head = key_head + s.kv_head_count;
      const auto q = QkvHead(s, qkv, b, h), dq = QkvHead(s, dqkv, b, h);
      const auto k = KvHead(block, keys_values, b, key_head);
      const auto v = KvHead(block, keys_values, b, value_head);
      const auto dk = KvHead(block, dkeys_values, b, key_head);
      const auto dv = KvHead(block, dkeys_values, b, value_head);
      const auto o = OutHead(s, out, b, h), d_o = OutHead(s, dout, b, h);
      const T* sums = log_sum + (b * s.head_count + h) * s.sequence_length;
      for (int64_t i = 0; i < block.query_count; ++i) {
        const int64_t t = block.query_begin + i;
        const T mean = Dot(s.head_dim, d_o.row(t), o.row(t));
        for (int64_t u = 0; u < block.key_count; ++u) {
          const T score = scale * Dot(s.head_dim, q.row(t), k.row(u));
          const T p = std::exp(score - sums[t]);
          const T dp = Dot(s.head_dim, d_o.row(t), v.row(u));
          const T dscore = p * (dp - mean) * scale;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            dv.row(u)[d] += p * d_o.row(t)[d];
            dq.row(t)[d] += dscore * k.row(u)[d];
            dk.row(u)[d] += dscore * q.row(t)[d];
          }
        }
      }
    }
  }
}

template <typename T>
void PlainOps<T>::SetZero(int64_t n, T* x) {
  std::fill(x, x + n, T(0));
}

template <typename T>
void PlainOps<T>::Axpy(int64_t n, T alpha, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

template <typename T>
double PlainOps<T>::Sum(int64_t n, const T* x) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

template <typename T>
double PlainOps<T>::SumOfSquares(int64_t n, const T* x) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

template <typename T>
void PlainOps<T>::Sgd(int64_t n, T learning_rate, T gradient_scale, const T* g,
                      T* p) {
  for (int64_t i = 0; i < n; ++i) {
    const T scaled = g[i] * gradient_scale;
    p[i] -= learning_rate * scaled;
  }
}

template <typename T>
void PlainOps<T>::AdamW(int64_t n, const AdamWStep<T>& a, const T* g, T* p,
                        T* m, T* v) {
  const T decay = T(1) - a.learning_rate * a.weight_decay;
  const T step_size = a.learning_rate / a.bias_correction1;
  for (int64_t i = 0; i < n; ++i) {
    const T gradient = g[i] * a.gradient_scale;
    m[i] += (T(1) - a.beta1) * (gradient - m[i]);
    v[i] = a.beta2 * v[i] + (T(1) - a.beta2) * gradient * gradient;
    const T root = std::sqrt(v[i]) / a.bias_correction2_sqrt + a.epsilon;
    p[i] = p[i] * decay - step_size * (m[i] / root);
  }
}

template class PlainOps<float>;
template class PlainOps<double>;

}  // namespace atl::engine
