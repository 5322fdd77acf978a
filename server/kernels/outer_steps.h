// The element-wise steps of the outer optimizers, vectorised.
//
// Pure. Thread-safe. No allocation.
//
//   n      elements, >= 0
//   g      merged outer gradient, shape [n], f32: old minus new
//   theta  master parameters, shape [n], f32; read and written
//   m, v   optimizer state, shape [n], f32; read and written
//
// Arrays do not overlap. Every element is computed by itself, in f32, with the
// operations of the plain definition in that order: an FMA only where `Fma` is
// written. All of add, multiply, FMA, divide and square root are correctly
// rounded, so that the result has the same bits on every CPU and for every cut
// into calls.
//
// Sources: SGD, Momentum and Nesterov are PyTorch's torch.optim.SGD (its
// add_ with alpha is an FMA in the vectorised path). FedAdam, FedYogi and
// FedAdagrad are Algorithm 2 of arXiv 2003.00295 with Delta = -g. Delayed
// Nesterov is Algorithm 3 of arXiv 2401.09135.

#ifndef SERVER_KERNELS_OUTER_STEPS_H_
#define SERVER_KERNELS_OUTER_STEPS_H_

#include <cmath>
#include <cstdint>

namespace atl::kernels {

// --- Plain definitions, for float and double --------------------------------

// theta = theta - lr g.
template <typename T>
void SgdStepPlain(int64_t n, T lr, const T* g, T* theta) {
  for (int64_t i = 0; i < n; ++i) {
    theta[i] = std::fma(-lr, g[i], theta[i]);
  }
}

// m = momentum m + g; theta = theta - lr m.
template <typename T>
void MomentumStepPlain(int64_t n, T lr, T momentum, const T* g, T* theta,
                       T* m) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = m[i] * momentum + g[i];
    theta[i] = std::fma(-lr, m[i], theta[i]);
  }
}

// m = momentum m + g; theta = theta - lr (g + momentum m).
template <typename T>
void NesterovStepPlain(int64_t n, T lr, T momentum, const T* g, T* theta,
                       T* m) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = m[i] * momentum + g[i];
    theta[i] = std::fma(-lr, std::fma(momentum, m[i], g[i]), theta[i]);
  }
}

// Constants of the adaptive rules. 1 - beta is given and not computed here, so
// that it is rounded once, from double.
template <typename T>
struct AdaptiveConstants {
  T lr;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T tau;
};

// m = beta1 m + (1 - beta1) Delta; theta = theta + lr m / (sqrt(v) + tau), with
//   FedAdam:    v = beta2 v + (1 - beta2) Delta^2
//   FedYogi:    v = v - (1 - beta2) Delta^2 sign(v - Delta^2)
//   FedAdagrad: v = v + Delta^2
template <typename T>
void FedAdamStepPlain(int64_t n, const AdaptiveConstants<T>& c, const T* g,
                      T* theta, T* m, T* v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * delta;
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (delta * delta);
    theta[i] = theta[i] + c.lr * m[i] / (std::sqrt(v[i]) + c.tau);
  }
}

template <typename T>
void FedYogiStepPlain(int64_t n, const AdaptiveConstants<T>& c, const T* g,
                      T* theta, T* m, T* v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    const T square = delta * delta;
    const T sign = v[i] > square ? T{1} : v[i] < square ? T{-1} : T{0};
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * delta;
    v[i] = v[i] - c.one_minus_beta2 * square * sign;
    theta[i] = theta[i] + c.lr * m[i] / (std::sqrt(v[i]) + c.tau);
  }
}

template <typename T>
void FedAdagradStepPlain(int64_t n, const AdaptiveConstants<T>& c, const T* g,
                         T* theta, T* m, T* v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * delta;
    v[i] = v[i] + delta * delta;
    theta[i] = theta[i] + c.lr * m[i] / (std::sqrt(v[i]) + c.tau);
  }
}

// Constants of Delayed Nesterov with a buffer of N contributions and the share
// c of the momentum that each step between takes.
template <typename T>
struct DelayedConstants {
  T lr;
  T momentum;      // beta.
  T buffer_count;  // N.
  T carried;       // c beta.
  T flushed;       // (1 - c N + c) beta.
};

// sum = sum + g, and then
//   if `flush`: m = beta m + sum / N; sum = 0;
//               theta = theta - lr ((1 - c N + c) beta m + g / N)
//   else:       theta = theta - lr (c beta m + g / N)
// The empty sum is -0, for which see core/outer_optimizer/nesterov.cc; with
// N = 1 and c = 0 this is NesterovStep, bit for bit.
template <typename T>
void DelayedNesterovStepPlain(int64_t n, const DelayedConstants<T>& c,
                              bool flush, const T* g, T* theta, T* m, T* sum) {
  for (int64_t i = 0; i < n; ++i) {
    const T share = g[i] / c.buffer_count;
    sum[i] = sum[i] + g[i];
    T weight = c.carried;
    if (flush) {
      m[i] = m[i] * c.momentum + sum[i] / c.buffer_count;
      sum[i] = T{-0.0};
      weight = c.flushed;
    }
    theta[i] = std::fma(-c.lr, std::fma(weight, m[i], share), theta[i]);
  }
}

// --- Vectorised, AVX-512 or AVX2 as the CPU has it --------------------------

void SgdStep(int64_t n, float lr, const float* g, float* theta);
void MomentumStep(int64_t n, float lr, float momentum, const float* g,
                  float* theta, float* m);
void NesterovStep(int64_t n, float lr, float momentum, const float* g,
                  float* theta, float* m);
void FedAdamStep(int64_t n, const AdaptiveConstants<float>& c, const float* g,
                 float* theta, float* m, float* v);
void FedYogiStep(int64_t n, const AdaptiveConstants<float>& c, const float* g,
                 float* theta, float* m, float* v);
void FedAdagradStep(int64_t n, const AdaptiveConstants<float>& c,
                    const float* g, float* theta, float* m, float* v);
void DelayedNesterovStep(int64_t n, const DelayedConstants<float>& c,
                         bool flush, const float* g, float* theta, float* m,
                         float* sum);

}  // namespace atl::kernels

#endif  // SERVER_KERNELS_OUTER_STEPS_H_
