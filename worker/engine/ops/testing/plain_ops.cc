#include "worker/engine/ops/testing/plain_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "worker/engine/ops/ops.h"

namespace atl::engine {
namespace {

// One head of one sequence, in qkv, out or their gradients.
template <typename T>
struct HeadView {
  T* data;
  int64_t row_stride;
  T* row(int64_t t) const { return data + t * row_stride; }
};

// `head` counts the H + 2 G heads of a qkv row.
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
void PlainOps<T>::Embedding(int64_t rows, int64_t begin, int64_t count,
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
void PlainOps<T>::EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                                    int64_t channels, const int32_t* tokens,
                                    const T* dout, T* dtable) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t id = tokens[r] - begin;
    if (id < 0 || id >= count) continue;
    T* target = dtable + id * channels;
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

}  // namespace atl::engine

#include "worker/engine/ops/testing/plain_attention-inl.h"
#include "worker/engine/ops/testing/plain_mixture-inl.h"

namespace atl::engine {

template class PlainOps<float>;
template class PlainOps<double>;

}  // namespace atl::engine
