#include "base/layout/init_generator.h"

#include <cmath>
#include <cstring>

namespace atl {
namespace {

// The first two words of Philox4x32-10.
uint64_t Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t x0 = static_cast<uint32_t>(counter_low);
  uint32_t x1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t x2 = static_cast<uint32_t>(counter_high);
  uint32_t x3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * x2;
    x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<uint32_t>(p1);
    x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return (uint64_t{x1} << 32) | x0;
}

// (((c[7] x + c[6]) x + ...) x + c[0]).
double Polynomial(const double (&c)[8], double x) {
  double sum = c[7];
  for (int i = 6; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

// AS 241, PPND16: numerators and denominators of its three regions.
constexpr double kA[8] = {
    3.3871328727963666080e0,  1.3314166789178437745e+2,
    1.9715909503065514427e+3, 1.3731693765509461125e+4,
    4.5921953931549871457e+4, 6.7265770927008700853e+4,
    3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kB[8] = {1.0,
                          4.2313330701600911252e+1,
                          6.8718700749205790830e+2,
                          5.3941960214247511077e+3,
                          2.1213794301586595867e+4,
                          3.9307895800092710610e+4,
                          2.8729085735721942674e+4,
                          5.2264952788528545610e+3};
constexpr double kC[8] = {
    1.42343711074968357734e0,  4.63033784615654529590e0,
    5.76949722146069140550e0,  3.64784832476320460504e0,
    1.27045825245236838258e0,  2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[8] = {1.0,
                          2.05319162663775882187e0,
                          1.67638483018380384940e0,
                          6.89767334985100004550e-1,
                          1.48103976427480074590e-1,
                          1.51986665636164571966e-2,
                          5.47593808499534494600e-4,
                          1.05075007164441684324e-9};
constexpr double kE[8] = {
    6.65790464350110377720e0,  5.46378491116411436990e0,
    1.78482653991729133580e0,  2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[8] = {1.0,
                          5.99832206555887937690e-1,
                          1.36929880922735805310e-1,
                          1.48753612908506148525e-2,
                          7.86869131145613259100e-4,
                          1.84631831751005468180e-5,
                          1.42151175831644588870e-7,
                          2.04426310338993978564e-15};

}  // namespace

double DeterministicLog(double x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s in
  // [-0.172, 0.172], by its series.
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m;
  std::memcpy(&m, &bits, sizeof(m));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
  const double log_m = 2.0 * s + 2.0 * s * series;
  return static_cast<double>(exponent) * 0.69314718055994530942 + log_m;
}

double NormalQuantile(double u) {
  const double q = u - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  double r = q < 0 ? u : 1.0 - u;
  r = std::sqrt(-DeterministicLog(r));
  double z;
  if (r <= 5.0) {
    r -= 1.6;
    z = Polynomial(kC, r) / Polynomial(kD, r);
  } else {
    r -= 5.0;
    z = Polynomial(kE, r) / Polynomial(kF, r);
  }
  return q < 0 ? -z : z;
}

void GenerateInit(const v1::TensorInit& init, uint64_t seed, int32_t tensor,
                  int64_t first_element, absl::Span<float> out) {
  if (init.kind() != v1::INIT_KIND_NORMAL) {
    const float value = static_cast<float>(init.value());
    for (float& x : out) x = value;
    return;
  }
  const uint64_t high = static_cast<uint32_t>(tensor);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits =
        Philox(seed, static_cast<uint64_t>(first_element) + i, high);
    const double k = static_cast<double>(bits >> 12);
    const double u = (k + 0.5) * 0x1p-52;
    out[i] = static_cast<float>(init.value() * NormalQuantile(u));
  }
}

}  // namespace atl
