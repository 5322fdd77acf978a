// The element-wise steps of the outer optimizers, as plain definitions, for
// float and double; loop_table.h has the vectorised ones. Pure. Thread-safe. No
// allocation.
//
//   n      elements, >= 0
//   g      merged outer gradient, shape [n], f32: old minus new
//   theta  master parameters, shape [n], f32; read and written
//   m, v   optimizer state, shape [n], f32; read and written
//
// An array may be updated in place (`InOut`); otherwise arrays do not overlap.
// Every element is computed separately, in f32, with the operations and order
// of the plain definition; an FMA only where `Fma` is written. Add, multiply,
// FMA, divide and square root are correctly rounded, so every CPU and every cut
// into calls gives the same bits.
//
// Sources: SGD, Momentum and Nesterov are PyTorch's torch.optim.SGD (its add_
// with alpha is an FMA in the vectorised path). FedAdam, FedYogi and FedAdagrad
// are Algorithm 2 of arXiv 2003.00295 with Delta = -g. Delayed Nesterov is
// Algorithm 3 of arXiv 2401.09135.

#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace atl::kernels {

// The array that a step reads and the one that it writes: equal or disjoint.
template <typename T>
struct InOut {
  InOut(T* array) : in(array), out(array) {}  // Implicit: in place.
  InOut(const T* from, T* to) : in(from), out(to) {}
  const T* in;
  T* out;
};

// Not deduced, so that a plain pointer converts.
template <typename T>
using InOutOf = InOut<std::type_identity_t<T>>;

// theta = theta - lr g.
template <typename T>
void SgdStepPlain(int64_t n, T lr, const T* g, InOutOf<T> theta) {
  for (int64_t i = 0; i < n; ++i) {
    theta.out[i] = std::fma(-lr, g[i], theta.in[i]);
  }
}

// m = momentum m + g; theta = theta - lr m.
template <typename T>
void MomentumStepPlain(int64_t n, T lr, T momentum, const T* g,
                       InOutOf<T> theta, InOutOf<T> m) {
  for (int64_t i = 0; i < n; ++i) {
    const T next = m.in[i] * momentum + g[i];
    m.out[i] = next;
    theta.out[i] = std::fma(-lr, next, theta.in[i]);
  }
}

// m = momentum m + g; theta = theta - lr (g + momentum m).
template <typename T>
void NesterovStepPlain(int64_t n, T lr, T momentum, const T* g,
                       InOutOf<T> theta, InOutOf<T> m) {
  for (int64_t i = 0; i < n; ++i) {
    const T next = m.in[i] * momentum + g[i];
    m.out[i] = next;
    theta.out[i] = std::fma(-lr, std::fma(momentum, next, g[i]), theta.in[i]);
  }
}

// Constants of the adaptive rules. 1 - beta is rounded once, from double.
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
                      InOutOf<T> theta, InOutOf<T> m, InOutOf<T> v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    const T m1 = c.beta1 * m.in[i] + c.one_minus_beta1 * delta;
    const T v1 = c.beta2 * v.in[i] + c.one_minus_beta2 * (delta * delta);
    m.out[i] = m1;
    v.out[i] = v1;
    theta.out[i] = theta.in[i] + c.lr * m1 / (std::sqrt(v1) + c.tau);
  }
}

template <typename T>
void FedYogiStepPlain(int64_t n, const AdaptiveConstants<T>& c, const T* g,
                      InOutOf<T> theta, InOutOf<T> m, InOutOf<T> v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    const T square = delta * delta;
    const T v0 = v.in[i];
    const T sign = v0 > square ? T{1} : v0 < square ? T{-1} : T{0};
    const T m1 = c.beta1 * m.in[i] + c.one_minus_beta1 * delta;
    const T v1 = v0 - c.one_minus_beta2 * square * sign;
    m.out[i] = m1;
    v.out[i] = v1;
    theta.out[i] = theta.in[i] + c.lr * m1 / (std::sqrt(v1) + c.tau);
  }
}

template <typename T>
void FedAdagradStepPlain(int64_t n, const AdaptiveConstants<T>& c, const T* g,
                         InOutOf<T> theta, InOutOf<T> m, InOutOf<T> v) {
  for (int64_t i = 0; i < n; ++i) {
    const T delta = -g[i];
    const T m1 = c.beta1 * m.in[i] + c.one_minus_beta1 * delta;
    const T v1 = v.in[i] + delta * delta;
    m.out[i] = m1;
    v.out[i] = v1;
    theta.out[i] = theta.in[i] + c.lr * m1 / (std::sqrt(v1) + c.tau);
  }
}

// Constants of Delayed Nesterov: N contributions a buffer, and the share c of
// the momentum that each step between takes.
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
// The empty sum is -0 (see WithMomentum of core/outer_optimizer). With N = 1 and
// c = 0 this is NesterovStepPlain, bit for bit.
template <typename T>
void DelayedNesterovStepPlain(int64_t n, const DelayedConstants<T>& c,
                              bool flush, const T* g, InOutOf<T> theta,
                              InOutOf<T> m, InOutOf<T> sum) {
  for (int64_t i = 0; i < n; ++i) {
    const T share = g[i] / c.buffer_count;
    const T added = sum.in[i] + g[i];
    T next = m.in[i];
    T weight = c.carried;
    if (flush) {
      next = next * c.momentum + added / c.buffer_count;
      weight = c.flushed;
    }
    m.out[i] = next;
    sum.out[i] = flush ? T{-0.0} : added;
    theta.out[i] = std::fma(-c.lr, std::fma(weight, next, share), theta.in[i]);
  }
}

}  // namespace atl::kernels
