// Kernels over rows and flat vectors, only for kernels_*.cc; see vector-inl.h.

#pragma once

#include <cstdint>

#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/vector-inl.h"
#include "worker/engine/ops/shapes.h"

namespace atl::engine::ATL_ENGINE_ISA {

// Returns the sum of squares of x + delta, and writes x + delta to `sum` if
// there is a delta or `sum` is not null.
template <bool kHasDelta>
ATL_ENGINE_INLINE float SumAndSquare(int64_t channels, const float* x,
                                     const float* delta, float* sum) {
  Vec squares = Set(0.0f);
  ForVectors(channels, [&](int64_t i, auto part) {
    Vec s = Load(x + i, part);
    if constexpr (kHasDelta) s = Add(s, Load(delta + i, part));
    if (kHasDelta || sum != nullptr) Store(sum + i, s, part);
    squares = Fma(s, s, squares);
  });
  return ReduceAdd(squares);
}

void AddRmsNorm(int64_t rows, int64_t channels, float eps, const float* x,
                const float* delta, const float* gain, float* sum, float* y,
                float* rstd) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * channels;
    float* total = sum != nullptr ? sum + r * channels : nullptr;
    const float squares =
        delta != nullptr
            ? SumAndSquare<true>(channels, in, delta + r * channels, total)
            : SumAndSquare<false>(channels, in, nullptr, total);
    const float scale =
        1.0f / __builtin_sqrtf(squares / static_cast<float>(channels) + eps);
    rstd[r] = scale;
    const float* s = total != nullptr ? total : in;
    float* out = y + r * channels;
    ForVectors(channels, [&](int64_t i, auto part) {
      const Vec normed = Mul(Load(s + i, part), Set(scale));
      Store(out + i, Mul(normed, Load(gain + i, part)), part);
    });
  }
}

template <bool kAccumulate>
ATL_ENGINE_INLINE void RmsNormBackwardRow(int64_t channels, const float* dy,
                                          const float* s, float rstd,
                                          const float* gain, float* ds,
                                          float* dgain) {
  Vec dot = Set(0.0f);
  ForVectors(channels, [&](int64_t i, auto part) {
    const Vec normed = Mul(Load(s + i, part), Set(rstd));
    const Vec d = Mul(Load(dy + i, part), normed);
    Store(dgain + i, Add(Load(dgain + i, part), d), part);
    dot = Fma(d, Load(gain + i, part), dot);
  });
  const Vec mean = Set(ReduceAdd(dot) / static_cast<float>(channels));
  ForVectors(channels, [&](int64_t i, auto part) {
    const Vec normed = Mul(Load(s + i, part), Set(rstd));
    const Vec h = Mul(Load(dy + i, part), Load(gain + i, part));
    const Vec inner = Fnma(normed, mean, h);
    const Vec value = kAccumulate ? Fma(inner, Set(rstd), Load(ds + i, part))
                                  : Mul(inner, Set(rstd));
    Store(ds + i, value, part);
  });
}

void RmsNormBackward(int64_t rows, int64_t channels, const float* dy,
                     const float* s, const float* rstd, const float* gain,
                     float* ds, float* dgain, bool accumulate) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * channels;
    if (accumulate) {
      RmsNormBackwardRow<true>(channels, dy + at, s + at, rstd[r], gain,
                               ds + at, dgain);
    } else {
      RmsNormBackwardRow<false>(channels, dy + at, s + at, rstd[r], gain,
                                ds + at, dgain);
    }
  }
}

void LayerNorm(int64_t rows, int64_t channels, float eps, const float* x,
               const float* gain, const float* bias, float* y, float* mean,
               float* rstd) {
  const float count = static_cast<float>(channels);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * channels;
    float* out = y + r * channels;
    Vec total = Set(0.0f), squares = Set(0.0f);
    ForVectors(channels, [&](int64_t i, auto part) {
      total = Add(total, Load(in + i, part));
    });
    mean[r] = ReduceAdd(total) / count;
    const Vec center = Set(mean[r]);
    ForVectors(channels, [&](int64_t i, auto part) {
      const Vec d = Keep(Sub(Load(in + i, part), center), Set(0.0f), part);
      squares = Fma(d, d, squares);
    });
    rstd[r] = 1.0f / __builtin_sqrtf(ReduceAdd(squares) / count + eps);
    const Vec scale = Set(rstd[r]);
    ForVectors(channels, [&](int64_t i, auto part) {
      const Vec normed = Mul(Sub(Load(in + i, part), center), scale);
      Store(out + i, Fma(normed, Load(gain + i, part), Load(bias + i, part)),
            part);
    });
  }
}

template <bool kAccumulate>
ATL_ENGINE_INLINE void LayerNormBackwardRow(int64_t channels, const float* dy,
                                            const float* x, float mean,
                                            float rstd, const float* gain,
                                            float* dx, float* dgain,
                                            float* dbias) {
  const Vec center = Set(mean), scale = Set(rstd);
  Vec sum = Set(0.0f), dot = Set(0.0f);
  ForVectors(channels, [&](int64_t i, auto part) {
    const Vec d = Load(dy + i, part), g = Load(gain + i, part);
    const Vec normed = Mul(Sub(Load(x + i, part), center), scale);
    Store(dbias + i, Add(Load(dbias + i, part), d), part);
    Store(dgain + i, Fma(d, normed, Load(dgain + i, part)), part);
    const Vec h = Mul(d, g);  // 0 in lanes past the end.
    sum = Add(sum, h);
    dot = Fma(h, normed, dot);
  });
  const float count = static_cast<float>(channels);
  const Vec mean_h = Set(ReduceAdd(sum) / count);
  const Vec mean_hn = Set(ReduceAdd(dot) / count);
  ForVectors(channels, [&](int64_t i, auto part) {
    const Vec normed = Mul(Sub(Load(x + i, part), center), scale);
    const Vec h = Mul(Load(dy + i, part), Load(gain + i, part));
    const Vec inner = Fnma(normed, mean_hn, Sub(h, mean_h));
    const Vec value =
        kAccumulate ? Fma(inner, scale, Load(dx + i, part)) : Mul(inner, scale);
    Store(dx + i, value, part);
  });
}

void LayerNormBackward(int64_t rows, int64_t channels, const float* dy,
                       const float* x, const float* mean, const float* rstd,
                       const float* gain, float* dx, float* dgain, float* dbias,
                       bool accumulate) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * channels;
    if (accumulate) {
      LayerNormBackwardRow<true>(channels, dy + at, x + at, mean[r], rstd[r],
                                 gain, dx + at, dgain, dbias);
    } else {
      LayerNormBackwardRow<false>(channels, dy + at, x + at, mean[r], rstd[r],
                                  gain, dx + at, dgain, dbias);
    }
  }
}

void AddRow(int64_t channels, const float* x, const float* delta,
            const float* bias, float* out) {
  ForVectors(channels, [&](int64_t i, auto part) {
    Vec d = Load(delta + i, part);
    if (bias != nullptr) d = Add(d, Load(bias + i, part));
    Store(out + i, Add(Load(x + i, part), d), part);
  });
}

template <bool kInverse>
ATL_ENGINE_INLINE void RopeHead(int64_t half, const float* cosines,
                                const float* sines, float* z) {
  ForVectors(half, [&](int64_t i, auto part) {
    const Vec a = Load(z + i, part), b = Load(z + half + i, part);
    const Vec c = Load(cosines + i, part), s = Load(sines + i, part);
    if constexpr (kInverse) {
      Store(z + i, Fma(b, s, Mul(a, c)), part);
      Store(z + half + i, Fms(b, c, Mul(a, s)), part);
    } else {
      Store(z + i, Fms(a, c, Mul(b, s)), part);
      Store(z + half + i, Fma(a, s, Mul(b, c)), part);
    }
  });
}

void Rope(const AttentionShape& shape, const float* table, bool inverse,
          int64_t begin, int64_t end, float* qkv) {
  const int64_t half = shape.head_dim / 2;
  const int64_t heads = shape.head_count + shape.kv_head_count;
  for (int64_t r = begin; r < end; ++r) {
    const float* cosines = table + (r % shape.sequence_length) * shape.head_dim;
    float* z = qkv + r * shape.qkv_size();
    for (int64_t h = 0; h < heads; ++h, z += shape.head_dim) {
      if (inverse) {
        RopeHead<true>(half, cosines, cosines + half, z);
      } else {
        RopeHead<false>(half, cosines, cosines + half, z);
      }
    }
  }
}

void SwiGlu(int64_t rows, int64_t inner, const float* gate_up, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = gate_up + r * 2 * inner;
    const float* up = gate + inner;
    float* out = y + r * inner;
    ForVectors(inner, [&](int64_t i, auto part) {
      const Vec g = Load(gate + i, part);
      const Vec silu = Mul(g, Sigmoid(g));
      Store(out + i, Mul(silu, Load(up + i, part)), part);
    });
  }
}

void SwiGluBackward(int64_t rows, int64_t inner, const float* gate_up,
                    const float* dy, float* dgate_up) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = gate_up + r * 2 * inner;
    const float* up = gate + inner;
    float* dgate = dgate_up + r * 2 * inner;
    float* dup = dgate + inner;
    const float* d_out = dy + r * inner;
    ForVectors(inner, [&](int64_t i, auto part) {
      const Vec g = Load(gate + i, part), u = Load(up + i, part);
      const Vec d = Load(d_out + i, part);
      const Vec sigmoid = Sigmoid(g);
      const Vec silu = Mul(g, sigmoid);
      // d silu / d g = sigmoid (1 + g (1 - sigmoid)) = sigmoid + silu - silu
      // sigmoid
      const Vec slope = Fnma(silu, sigmoid, Add(sigmoid, silu));
      Store(dgate + i, Mul(Mul(d, u), slope), part);
      Store(dup + i, Mul(d, silu), part);
    });
  }
}

inline constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715f;

// sigmoid(2 u), with u as in Ops::Gelu.
ATL_ENGINE_INLINE Vec GeluSigmoid(Vec x) {
  const Vec cube = Mul(Mul(x, x), Set(kGeluCube));
  return Sigmoid(Mul(Set(kGeluScale), Fma(cube, x, x)));
}

void Gelu(int64_t n, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part);
    Store(y + i, Mul(v, GeluSigmoid(v)), part);
  });
}

void GeluBackward(int64_t n, const float* x, const float* dy, float* dx) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part), sigmoid = GeluSigmoid(v);
    const Vec square = Mul(Mul(v, v), Set(3.0f * kGeluCube));
    const Vec slope = Fma(square, Set(kGeluScale), Set(kGeluScale));
    const Vec rise = Mul(Mul(v, sigmoid), Sub(Set(1.0f), sigmoid));
    Store(dx + i, Mul(Load(dy + i, part), Fma(rise, slope, sigmoid)), part);
  });
}

ATL_ENGINE_INLINE float FindMax(int64_t n, const float* x) {
  const Vec lowest = Set(-__builtin_inff());
  Vec top = lowest;
  ForVectors(n, [&](int64_t i, auto part) {
    top = Max(top, Keep(Load(x + i, part), lowest, part));
  });
  return ReduceMax(top);
}

// Sum of e^(x - shift). kStore also writes the terms to `terms`.
template <bool kStore>
ATL_ENGINE_INLINE float SumExp(int64_t n, const float* x, float shift,
                               float* terms) {
  Vec total = Set(0.0f);
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec e =
        Keep(Exp(Sub(Load(x + i, part), Set(shift))), Set(0.0f), part);
    if constexpr (kStore) Store(terms + i, e, part);
    total = Add(total, e);
  });
  return ReduceAdd(total);
}

void Softmax(int64_t rows, int64_t n, const float* x, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    float* out = y + r * n;
    const float top = FindMax(n, in);
    const Vec factor = Set(1.0f / SumExp<true>(n, in, top, out));
    ForVectors(n, [&](int64_t i, auto part) {
      Store(out + i, Mul(Load(out + i, part), factor), part);
    });
  }
}

void CrossEntropy(int64_t rows, int64_t vocab, const float* logits,
                  const int32_t* targets, float* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * vocab;
    const float top = FindMax(vocab, row);
    const float total = SumExp<false>(vocab, row, top, nullptr);
    losses[r] = __builtin_logf(total) + (top - row[targets[r]]);
  }
}

void CrossEntropyBackward(int64_t rows, int64_t vocab, float scale,
                          float* logits, const int32_t* targets,
                          float* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * vocab;
    const float top = FindMax(vocab, row);
    const float target = row[targets[r]];
    const float total = SumExp<true>(vocab, row, top, row);
    // A NaN or infinite logit must reach the loss even if Exp clamps it.
    losses[r] = __builtin_logf(total) + (top - target);
    const Vec factor = Set(scale / total);
    ForVectors(vocab, [&](int64_t i, auto part) {
      Store(row + i, Mul(Load(row + i, part), factor), part);
    });
    row[targets[r]] -= scale;
  }
}

float FindLargest(int64_t n, const float* x) { return FindMax(n, x); }

float SumOfExp(int64_t n, const float* x, float top) {
  return SumExp<false>(n, x, top, nullptr);
}

void ScaledExp(int64_t n, float top, float factor, float* x) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec e = Exp(Sub(Load(x + i, part), Set(top)));
    Store(x + i, Mul(e, Set(factor)), part);
  });
}

void AddTo(int64_t n, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    Store(y + i, Add(Load(y + i, part), Load(x + i, part)), part);
  });
}

void Axpy(int64_t n, float alpha, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec product = Mul(Set(alpha), Load(x + i, part));
    Store(y + i, Add(Load(y + i, part), product), part);
  });
}

void Scale(int64_t n, float alpha, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    Store(y + i, Mul(Set(alpha), Load(x + i, part)), part);
  });
}

void FusedAxpy(int64_t n, float alpha, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec sum = Fma(Set(alpha), Load(x + i, part), Load(y + i, part));
    Store(y + i, sum, part);
  });
}

float Dot(int64_t n, const float* x, const float* y) {
  Vec sum = Set(0.0f);
  ForVectors(n, [&](int64_t i, auto part) {
    sum = Fma(Load(x + i, part), Load(y + i, part), sum);
  });
  return ReduceAdd(sum);
}

double Sum(int64_t n, const float* x) {
  Wide low = WideZero(), high = WideZero();
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part);
    low = WideAdd(low, LowHalf(v));
    high = WideAdd(high, HighHalf(v));
  });
  return WideReduceAdd(WideAdd(low, high));
}

double SumOfSquares(int64_t n, const float* x) {
  Wide low = WideZero(), high = WideZero();
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part);
    low = WideFma(LowHalf(v), LowHalf(v), low);
    high = WideFma(HighHalf(v), HighHalf(v), high);
  });
  return WideReduceAdd(WideAdd(low, high));
}

void Sgd(int64_t n, float learning_rate, float gradient_scale, const float* g,
         float* p) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec scaled = Mul(Load(g + i, part), Set(gradient_scale));
    const Vec step = Mul(Set(learning_rate), scaled);
    Store(p + i, Sub(Load(p + i, part), step), part);
  });
}

void AdamW(int64_t n, const AdamWStep<float>& a, const float* g, float* p,
           float* m, float* v) {
  const Vec scale = Set(a.gradient_scale);
  const Vec decay = Set(1.0f - a.learning_rate * a.weight_decay);
  const Vec step_size = Set(a.learning_rate / a.bias_correction1);
  const Vec root_scale = Set(1.0f / a.bias_correction2_sqrt);
  const Vec one_minus_beta1 = Set(1.0f - a.beta1);
  const Vec one_minus_beta2 = Set(1.0f - a.beta2);
  const Vec beta2 = Set(a.beta2), epsilon = Set(a.epsilon);
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec gradient = Mul(Load(g + i, part), scale);
    const Vec m0 = Load(m + i, part), v0 = Load(v + i, part);
    const Vec m1 = Fma(Sub(gradient, m0), one_minus_beta1, m0);
    const Vec squared = Mul(Mul(one_minus_beta2, gradient), gradient);
    const Vec v1 = Fma(beta2, v0, squared);
    // Lanes past the end divide 0 by epsilon, so they give no NaN.
    const Vec root = Fma(Sqrt(v1), root_scale, epsilon);
    const Vec decayed = Mul(Load(p + i, part), decay);
    Store(p + i, Fnma(step_size, Div(m1, root), decayed), part);
    Store(m + i, m1, part);
    Store(v + i, v1, part);
  });
}

void RoundToBf16(int64_t n, const float* x, float* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    Store(y + i, NearestBf16(Load(x + i, part)), part);
  });
}

void ToBf16(int64_t n, const float* x, uint16_t* y) {
  ForVectors(n, [&](int64_t i, auto part) {
    StoreUpperHalves(y + i, NearestBf16(Load(x + i, part)), part);
  });
}

}  // namespace atl::engine::ATL_ENGINE_ISA
