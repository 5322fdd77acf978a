// Element-wise operations: each is one pass over memory.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

template <typename F>
__global__ void ForEachKernel(int64_t n, F f) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) f(i);
}

template <typename F>
void ForEach(cudaStream_t stream, int64_t n, const F& f) {
  if (n <= 0) return;
  ATL_LAUNCH((ForEachKernel<F>), ElementBlocks(n), kBlockThreads, 0, stream, n,
             f);
}

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

__device__ inline float GeluSigmoid(float x) {
  return Sigmoid(static_cast<float>(2 * kGeluScale) *
                 (x + static_cast<float>(kGeluCube) * x * x * x));
}

struct AddRowsAt {
  int64_t channels;
  const float *x, *delta, *bias;
  float* out;
  __device__ void operator()(int64_t i) const {
    const float added =
        bias != nullptr ? delta[i] + bias[Divide(i, channels).rest] : delta[i];
    out[i] = x[i] + added;
  }
};

struct AddBiasAt {
  int64_t channels;
  const float* bias;
  float* y;
  __device__ void operator()(int64_t i) const {
    y[i] += bias[Divide(i, channels).rest];
  }
};

struct AddPositionsAt {
  int64_t table_size;  // T C
  const float* table;
  float* x;
  __device__ void operator()(int64_t i) const {
    x[i] += table[Divide(i, table_size).rest];
  }
};

struct PositionsBackwardAt {
  int64_t count, table_size;
  const float* dx;
  float* dtable;
  __device__ void operator()(int64_t i) const {
    float sum = dtable[i];
    for (int64_t at = i; at < count; at += table_size) sum += dx[at];
    dtable[i] = sum;
  }
};

// i counts pairs of channels of the H + G heads of queries and keys.
struct RopeAt {
  int64_t half, heads, qkv_size, sequence_length;
  const float* table;
  bool inverse;
  float* qkv;
  __device__ void operator()(int64_t i) const {
    const Divided by_pair = Divide(i, half);
    const Divided by_head = Divide(by_pair.quotient, heads);
    const int64_t pair = by_pair.rest, head = by_head.rest;
    const int64_t row = by_head.quotient;
    const int64_t position = Divide(row, sequence_length).rest;
    const float* angles = table + position * 2 * half + pair;
    const float cosine = angles[0];
    const float sine = inverse ? -angles[half] : angles[half];
    float* z = qkv + row * qkv_size + head * 2 * half + pair;
    const float a = z[0], b = z[half];
    z[0] = a * cosine - b * sine;
    z[half] = b * cosine + a * sine;
  }
};

struct SwiGluAt {
  int64_t inner;
  const float* gate_up;
  float* y;
  __device__ void operator()(int64_t i) const {
    const Divided at = Divide(i, inner);
    const float* gate = gate_up + at.quotient * 2 * inner + at.rest;
    y[i] = gate[0] * Sigmoid(gate[0]) * gate[inner];
  }
};

struct SwiGluBackwardAt {
  int64_t inner;
  const float *gate_up, *dy;
  float* dgate_up;
  __device__ void operator()(int64_t i) const {
    const Divided place = Divide(i, inner);
    const int64_t at = place.quotient * 2 * inner + place.rest;
    const float g = gate_up[at], u = gate_up[at + inner], d = dy[i];
    const float sigmoid = Sigmoid(g);
    dgate_up[at] = d * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
    dgate_up[at + inner] = d * g * sigmoid;
  }
};

struct GeluAt {
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    y[i] = x[i] * GeluSigmoid(x[i]);
  }
};

struct GeluBackwardAt {
  const float *x, *dy;
  float* dx;
  __device__ void operator()(int64_t i) const {
    const float at = x[i], sigmoid = GeluSigmoid(at);
    const float slope = static_cast<float>(2 * kGeluScale) *
                        (1.0f + static_cast<float>(3 * kGeluCube) * at * at);
    dx[i] = dy[i] * (sigmoid + at * sigmoid * (1.0f - sigmoid) * slope);
  }
};

struct AxpyAt {
  float alpha;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] += alpha * x[i]; }
};

struct SgdAt {
  float learning_rate, gradient_scale;
  const float* g;
  float* p;
  __device__ void operator()(int64_t i) const {
    const float scaled = g[i] * gradient_scale;
    p[i] -= learning_rate * scaled;
  }
};

struct AdamWAt {
  AdamWStep<float> a;
  float decay, step_size;
  const float* g;
  float *p, *m, *v;
  __device__ void operator()(int64_t i) const {
    const float gradient = g[i] * a.gradient_scale;
    const float mean = m[i] + (1.0f - a.beta1) * (gradient - m[i]);
    const float square =
        a.beta2 * v[i] + (1.0f - a.beta2) * gradient * gradient;
    const float root = sqrtf(square) / a.bias_correction2_sqrt + a.epsilon;
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * decay - step_size * (mean / root);
  }
};

// SgdAt with numbers from device memory. Does nothing if the scale is a NaN.
struct SgdByAt {
  const AdamWStep<float>* step;
  const float* scale;
  const float* g;
  float* p;
  __device__ void operator()(int64_t i) const {
    const float factor = *scale;
    if (factor == factor) SgdAt{step->learning_rate, factor, g, p}(i);
  }
};

struct AdamWByAt {
  const AdamWStep<float>* step;
  const float* scale;
  const float* g;
  float *p, *m, *v;
  __device__ void operator()(int64_t i) const {
    AdamWStep<float> a = *step;
    a.gradient_scale = *scale;
    if (a.gradient_scale != a.gradient_scale) return;
    const float decay = 1.0f - a.learning_rate * a.weight_decay;
    AdamWAt{a, decay, a.learning_rate / a.bias_correction1, g, p, m, v}(i);
  }
};

struct ToBf16At {
  const float* x;
  uint16_t* narrow;
  __device__ void operator()(int64_t i) const { narrow[i] = ToBf16(x[i]); }
};

struct FromBf16At {
  const uint16_t* narrow;
  float* x;
  __device__ void operator()(int64_t i) const { x[i] = FromBf16(narrow[i]); }
};

struct GatherAt {
  int64_t channels;
  const int32_t* sources;
  const float* x;
  float* out;
  __device__ void operator()(int64_t i) const {
    const Divided at = Divide(i, channels);
    out[i] = x[sources[at.quotient] * channels + at.rest];
  }
};

struct CopyAt {
  int64_t columns;
  const float* from;
  int64_t from_stride;
  float* to;
  int64_t to_stride;
  __device__ void operator()(int64_t i) const {
    const Divided at = Divide(i, columns);
    to[at.quotient * to_stride + at.rest] =
        from[at.quotient * from_stride + at.rest];
  }
};

}  // namespace

void AddRows(cudaStream_t stream, int64_t rows, int64_t channels,
             const float* x, const float* delta, const float* bias,
             float* out) {
  ForEach(stream, rows * channels, AddRowsAt{channels, x, delta, bias, out});
}

void AddBias(cudaStream_t stream, int64_t rows, int64_t channels,
             const float* bias, float* y) {
  ForEach(stream, rows * channels, AddBiasAt{channels, bias, y});
}

void AddPositions(cudaStream_t stream, int64_t rows, int64_t sequence_length,
                  int64_t channels, const float* table, float* x) {
  ForEach(stream, rows * channels,
          AddPositionsAt{sequence_length * channels, table, x});
}

void PositionsBackward(cudaStream_t stream, int64_t rows,
                       int64_t sequence_length, int64_t channels,
                       const float* dx, float* dtable) {
  const int64_t size = sequence_length * channels, count = rows * channels;
  // Skips positions that no row has.
  ForEach(stream, size < count ? size : count,
          PositionsBackwardAt{count, size, dx, dtable});
}

void Rope(cudaStream_t stream, const AttentionShape& shape, const float* table,
          bool inverse, float* qkv) {
  const int64_t half = shape.head_dim / 2;
  const int64_t heads = shape.head_count + shape.kv_head_count;
  ForEach(stream, shape.rows() * heads * half,
          RopeAt{half, heads, shape.qkv_size(), shape.sequence_length, table,
                 inverse, qkv});
}

void SwiGlu(cudaStream_t stream, int64_t rows, int64_t inner,
            const float* gate_up, float* y) {
  ForEach(stream, rows * inner, SwiGluAt{inner, gate_up, y});
}

void SwiGluBackward(cudaStream_t stream, int64_t rows, int64_t inner,
                    const float* gate_up, const float* dy, float* dgate_up) {
  ForEach(stream, rows * inner, SwiGluBackwardAt{inner, gate_up, dy, dgate_up});
}

void Gelu(cudaStream_t stream, int64_t n, const float* x, float* y) {
  ForEach(stream, n, GeluAt{x, y});
}

void GeluBackward(cudaStream_t stream, int64_t n, const float* x,
                  const float* dy, float* dx) {
  ForEach(stream, n, GeluBackwardAt{x, dy, dx});
}

void Axpy(cudaStream_t stream, int64_t n, float alpha, const float* x,
          float* y) {
  ForEach(stream, n, AxpyAt{alpha, x, y});
}

void Sgd(cudaStream_t stream, int64_t n, float learning_rate,
         float gradient_scale, const float* g, float* p) {
  ForEach(stream, n, SgdAt{learning_rate, gradient_scale, g, p});
}

void AdamW(cudaStream_t stream, int64_t n, const AdamWStep<float>& step,
           const float* g, float* p, float* m, float* v) {
  const float decay = 1.0f - step.learning_rate * step.weight_decay;
  const float step_size = step.learning_rate / step.bias_correction1;
  ForEach(stream, n, AdamWAt{step, decay, step_size, g, p, m, v});
}

void SgdBy(cudaStream_t stream, int64_t n, const AdamWStep<float>* step,
           const float* scale, const float* g, float* p) {
  ForEach(stream, n, SgdByAt{step, scale, g, p});
}

void AdamWBy(cudaStream_t stream, int64_t n, const AdamWStep<float>* step,
             const float* scale, const float* g, float* p, float* m, float* v) {
  ForEach(stream, n, AdamWByAt{step, scale, g, p, m, v});
}

void ToBf16(cudaStream_t stream, int64_t n, const float* x, uint16_t* narrow) {
  ForEach(stream, n, ToBf16At{x, narrow});
}

void FromBf16(cudaStream_t stream, int64_t n, const uint16_t* narrow,
              float* x) {
  ForEach(stream, n, FromBf16At{narrow, x});
}

void GatherRows(cudaStream_t stream, int64_t count, int64_t channels,
                const int32_t* sources, const float* x, float* out) {
  ForEach(stream, count * channels, GatherAt{channels, sources, x, out});
}

void CopyColumns(cudaStream_t stream, int64_t rows, int64_t columns,
                 const float* from, int64_t from_stride, float* to,
                 int64_t to_stride) {
  ForEach(stream, rows * columns,
          CopyAt{columns, from, from_stride, to, to_stride});
}

}  // namespace atl::engine::cuda
