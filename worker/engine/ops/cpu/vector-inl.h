// A vector of f32 lanes: AVX-512 if the includer is compiled for it, else AVX2
// and FMA.
//
// Only kernels_*.cc include this file, each with its own compiler flags. This
// file and its includers use only integer types of the standard library. Else
// the linker could keep an inline function from here that some CPUs cannot run.

#pragma once

#include <immintrin.h>

#include <cstdint>

#if defined(__AVX512F__)
#define ATL_ENGINE_ISA avx512
#else
#define ATL_ENGINE_ISA avx2
#endif

#define ATL_ENGINE_INLINE inline __attribute__((always_inline))

namespace atl::engine::ATL_ENGINE_ISA {

// A whole vector, or its first `count` lanes. Others read as 0, stay unwritten.
struct All {};
struct First {
  int64_t count;
};

#if defined(__AVX512F__)

using Vec = __m512;
inline constexpr int64_t kLanes = 16;
inline constexpr int kTileRows = 12;

ATL_ENGINE_INLINE __mmask16 ToMask(First part) {
  return static_cast<__mmask16>((1u << part.count) - 1u);
}
ATL_ENGINE_INLINE Vec Load(const float* p, All) { return _mm512_loadu_ps(p); }
ATL_ENGINE_INLINE Vec Load(const float* p, First part) {
  return _mm512_maskz_loadu_ps(ToMask(part), p);
}
ATL_ENGINE_INLINE void Store(float* p, Vec v, All) { _mm512_storeu_ps(p, v); }
ATL_ENGINE_INLINE void Store(float* p, Vec v, First part) {
  _mm512_mask_storeu_ps(p, ToMask(part), v);
}
ATL_ENGINE_INLINE Vec Set(float x) { return _mm512_set1_ps(x); }
ATL_ENGINE_INLINE Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
ATL_ENGINE_INLINE Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
ATL_ENGINE_INLINE Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
ATL_ENGINE_INLINE Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
ATL_ENGINE_INLINE Vec Sqrt(Vec a) { return _mm512_sqrt_ps(a); }
ATL_ENGINE_INLINE Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
// a b + c, a b - c and c - a b, rounded once.
ATL_ENGINE_INLINE Vec Fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
ATL_ENGINE_INLINE Vec Fms(Vec a, Vec b, Vec c) {
  return _mm512_fmsub_ps(a, b, c);
}
ATL_ENGINE_INLINE Vec Fnma(Vec a, Vec b, Vec c) {
  return _mm512_fnmadd_ps(a, b, c);
}
// v in the lanes of `part`, `other` elsewhere.
ATL_ENGINE_INLINE Vec Keep(Vec v, Vec, All) { return v; }
ATL_ENGINE_INLINE Vec Keep(Vec v, Vec other, First part) {
  return _mm512_mask_blend_ps(ToMask(part), other, v);
}
ATL_ENGINE_INLINE Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
ATL_ENGINE_INLINE Vec Round(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v 2^n, for a whole n in [-126, 127].
ATL_ENGINE_INLINE Vec ScaleByPowerOfTwo(Vec v, Vec n) {
  return _mm512_scalef_ps(v, n);
}
// 0 where x < limit, else v, also where x is a NaN.
ATL_ENGINE_INLINE Vec ZeroBelow(Vec v, Vec x, Vec limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}
ATL_ENGINE_INLINE float ReduceAdd(Vec v) {
  const __m256 low = _mm512_castps512_ps256(v);
  const __m256 high = _mm512_extractf32x8_ps(v, 1);
  const __m256 a = _mm256_add_ps(low, high);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  b = _mm_add_ss(b, _mm_movehdup_ps(b));
  return _mm_cvtss_f32(b);
}
ATL_ENGINE_INLINE float ReduceMax(Vec v) { return _mm512_reduce_max_ps(v); }

// f64 lanes, for sums.
using Wide = __m512d;
ATL_ENGINE_INLINE Wide WideZero() { return _mm512_setzero_pd(); }
ATL_ENGINE_INLINE Wide WideAdd(Wide a, Wide b) { return _mm512_add_pd(a, b); }
ATL_ENGINE_INLINE Wide WideFma(Wide a, Wide b, Wide c) {
  return _mm512_fmadd_pd(a, b, c);
}
ATL_ENGINE_INLINE Wide LowHalf(Vec v) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}
ATL_ENGINE_INLINE Wide HighHalf(Vec v) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}
ATL_ENGINE_INLINE double WideReduceAdd(Wide v) {
  alignas(64) double lanes[8];
  _mm512_store_pd(lanes, v);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

// The nearest bfloat16, ties to even, as f32. A NaN becomes a quiet NaN.
ATL_ENGINE_INLINE Vec NearestBf16(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up =
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i chosen = _mm512_mask_blend_epi32(
      _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), up, quiet);
  return _mm512_castsi512_ps(
      _mm512_and_si512(chosen, _mm512_set1_epi32(-0x10000)));
}
ATL_ENGINE_INLINE void StoreUpperHalves(uint16_t* p, Vec v, All) {
  const __m512i halves = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(halves));
}
ATL_ENGINE_INLINE void StoreUpperHalves(uint16_t* p, Vec v, First part) {
  const __m512i halves = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
  _mm512_mask_cvtepi32_storeu_epi16(p, ToMask(part), halves);
}

#else  // AVX2

using Vec = __m256;
inline constexpr int64_t kLanes = 8;
inline constexpr int kTileRows = 6;

ATL_ENGINE_INLINE __m256i ToMask(First part) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(part.count)),
                            lane);
}
ATL_ENGINE_INLINE Vec Load(const float* p, All) { return _mm256_loadu_ps(p); }
ATL_ENGINE_INLINE Vec Load(const float* p, First part) {
  return _mm256_maskload_ps(p, ToMask(part));
}
ATL_ENGINE_INLINE void Store(float* p, Vec v, All) { _mm256_storeu_ps(p, v); }
ATL_ENGINE_INLINE void Store(float* p, Vec v, First part) {
  _mm256_maskstore_ps(p, ToMask(part), v);
}
ATL_ENGINE_INLINE Vec Set(float x) { return _mm256_set1_ps(x); }
ATL_ENGINE_INLINE Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
ATL_ENGINE_INLINE Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
ATL_ENGINE_INLINE Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
ATL_ENGINE_INLINE Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
ATL_ENGINE_INLINE Vec Sqrt(Vec a) { return _mm256_sqrt_ps(a); }
ATL_ENGINE_INLINE Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
ATL_ENGINE_INLINE Vec Fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
ATL_ENGINE_INLINE Vec Fms(Vec a, Vec b, Vec c) {
  return _mm256_fmsub_ps(a, b, c);
}
ATL_ENGINE_INLINE Vec Fnma(Vec a, Vec b, Vec c) {
  return _mm256_fnmadd_ps(a, b, c);
}
ATL_ENGINE_INLINE Vec Keep(Vec v, Vec, All) { return v; }
ATL_ENGINE_INLINE Vec Keep(Vec v, Vec other, First part) {
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(ToMask(part)));
}
ATL_ENGINE_INLINE Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
ATL_ENGINE_INLINE Vec Round(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
ATL_ENGINE_INLINE Vec ScaleByPowerOfTwo(Vec v, Vec n) {
  const __m256i exponent = _mm256_slli_epi32(
      _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(v, _mm256_castsi256_ps(exponent));
}
ATL_ENGINE_INLINE Vec ZeroBelow(Vec v, Vec x, Vec limit) {
  return _mm256_and_ps(v, _mm256_cmp_ps(x, limit, _CMP_NLT_UQ));
}
ATL_ENGINE_INLINE float ReduceAdd(Vec a) {
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  b = _mm_add_ss(b, _mm_movehdup_ps(b));
  return _mm_cvtss_f32(b);
}
ATL_ENGINE_INLINE float ReduceMax(Vec a) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  b = _mm_max_ss(b, _mm_movehdup_ps(b));
  return _mm_cvtss_f32(b);
}

using Wide = __m256d;
ATL_ENGINE_INLINE Wide WideZero() { return _mm256_setzero_pd(); }
ATL_ENGINE_INLINE Wide WideAdd(Wide a, Wide b) { return _mm256_add_pd(a, b); }
ATL_ENGINE_INLINE Wide WideFma(Wide a, Wide b, Wide c) {
  return _mm256_fmadd_pd(a, b, c);
}
ATL_ENGINE_INLINE Wide LowHalf(Vec v) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}
ATL_ENGINE_INLINE Wide HighHalf(Vec v) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}
ATL_ENGINE_INLINE double WideReduceAdd(Wide v) {
  alignas(32) double lanes[4];
  _mm256_store_pd(lanes, v);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

ATL_ENGINE_INLINE Vec NearestBf16(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 chosen =
      _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet),
                       _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_and_ps(chosen,
                       _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
}
ATL_ENGINE_INLINE void StoreUpperHalves(uint16_t* p, Vec v, All) {
  const __m256i halves = _mm256_srli_epi32(_mm256_castps_si256(v), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(halves),
                                          _mm256_extracti128_si256(halves, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
ATL_ENGINE_INLINE void StoreUpperHalves(uint16_t* p, Vec v, First part) {
  uint16_t all[8];
  StoreUpperHalves(all, v, All{});
  for (int64_t i = 0; i < part.count; ++i) p[i] = all[i];
}

#endif

// Calls f(i, part) for each vector of [0, n). The last one may be partial.
template <typename F>
ATL_ENGINE_INLINE void ForVectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, All{});
  if (i < n) f(i, First{n - i});
}

// e^x. Relative error below 2^-22 for x in [-87.33, 88.37]; 0 below that range,
// e^88.37 above it, NaN for NaN. Cephes' polynomial.
ATL_ENGINE_INLINE Vec Exp(Vec x) {
  const Vec lowest = Set(-87.33f);
  // x86 passes on a NaN only in this order of arguments.
  const Vec clamped = Max(lowest, Min(Set(88.37f), x));
  const Vec n = Round(Mul(clamped, Set(1.44269504088896341f)));
  Vec r = Fnma(n, Set(0.693359375f), clamped);
  r = Fnma(n, Set(-2.12194440e-4f), r);
  Vec p = Set(1.9875691500e-4f);
  p = Fma(p, r, Set(1.3981999507e-3f));
  p = Fma(p, r, Set(8.3334519073e-3f));
  p = Fma(p, r, Set(4.1665795894e-2f));
  p = Fma(p, r, Set(1.6666665459e-1f));
  p = Fma(p, r, Set(5.0000001201e-1f));
  p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
  return ZeroBelow(ScaleByPowerOfTwo(p, n), x, lowest);
}

ATL_ENGINE_INLINE Vec Sigmoid(Vec x) {
  return Div(Set(1.0f), Add(Set(1.0f), Exp(Sub(Set(0.0f), x))));
}

}  // namespace atl::engine::ATL_ENGINE_ISA
