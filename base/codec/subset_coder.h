// Codes which k of n elements are taken: a range coder with an exact model of
// fixed size. Pure. No allocation. The same integers on the CPU and on CUDA.
//
// A subset of k of the U = 2^level places takes SubsetBytes(k) bytes, whatever
// the subset: 59 for 64 of 4096, where log2 C(4096, 64) = 471.29 bits are
// 58.91.
//
// Model. The places are halved again and again. A range has 2 h places, of
// which k are taken. j of them are in its left half in C(h, j) C(h, k - j) of
// the C(2 h, k) ways. j is coded with that probability, in units of 2^-31
// (SubsetModel). With k = 1 the place itself is coded, uniformly; with k = 0 or
// k = 2 h nothing is. The left half comes first.
//
// Rounding. Every j but the most probable has its share rounded up and loses
// nothing. The most probable j has the rest and loses at most 65 units of
// 2^-31, less than 2^-21 of its share. The coder keeps a range of at least
// 2^56, so a step loses less than 2^-25 of its share. A subset has fewer than
// 200 steps: together less than 0.0002 bit, and SubsetBytes leaves at least
// 0.09 bit.
//
// Coder (after Martin 1979, with carries). The code is a binary fraction in
// [0, 1), most significant byte first. The interval [low, low + range) starts
// as [0, 2^64 - 1) * 2^-64. A symbol with the shares [c, c + f) of 2^b makes it
// [low + r c, low + r c + r f), r = floor(range / 2^b). While range < 2^56,
// both are multiplied by 256, and the top byte of low is the next code byte.
// The final code is the least number of SubsetBytes(k) bytes in the interval.
// There is one, because the interval is wider than that number's last place.
//
// Any bytes decode to k ascending places below U. (More than one byte string
// may stand for a subset; the encoder writes one.)

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/subset_model.h"

namespace atl::codec {

// Writes a code of `size` bytes.
class RangeEncoder {
 public:
  ATL_CODEC_FN RangeEncoder(uint8_t* code, size_t size)
      : code_(code), size_(size) {}

  // Codes a symbol with the shares [begin, begin + share) of 2^bits (<= 2^31).
  ATL_CODEC_FN void Put(uint64_t begin, uint64_t share, int bits) {
    const uint64_t unit = range_ >> bits;
    Add(unit * begin);
    range_ = unit * share;
    while (range_ < kRangeMin) {
      if (count_ < size_) code_[count_] = static_cast<uint8_t>(low_ >> 56);
      ++count_;
      low_ <<= 8;
      range_ <<= 8;
    }
  }

  ATL_CODEC_FN void Finish() {
    if (count_ < size_ && size_ - count_ < 8) {
      const int cut = 64 - 8 * static_cast<int>(size_ - count_);
      const uint64_t mask = (uint64_t{1} << cut) - 1;
      Add(mask);
      low_ &= ~mask;
    }
    for (; count_ < size_; ++count_) {
      code_[count_] = static_cast<uint8_t>(low_ >> 56);
      low_ <<= 8;
    }
  }

 private:
  static constexpr uint64_t kRangeMin = uint64_t{1} << 56;

  // low += amount, with the carry.
  ATL_CODEC_FN void Add(uint64_t amount) {
    low_ += amount;
    if (low_ >= amount) return;
    size_t at = count_ < size_ ? count_ : size_;
    while (at > 0 && ++code_[--at] == 0) {
    }
  }

  uint8_t* code_;
  size_t size_;
  size_t count_ = 0;
  uint64_t low_ = 0;
  uint64_t range_ = ~uint64_t{0};
};

// Reads a code of `size` bytes, followed by zeros.
class RangeDecoder {
 public:
  ATL_CODEC_FN RangeDecoder(const uint8_t* code, size_t size)
      : next_(code), end_(code + size) {
    for (int i = 0; i < 8; ++i) Shift();
  }

  // The current place of the code, in [0, 2^bits). Take must follow.
  ATL_CODEC_FN uint64_t Peek(int bits) {
    unit_ = range_ >> bits;
    const uint64_t place = code_ / unit_;
    const uint64_t last = (uint64_t{1} << bits) - 1;
    return place < last ? place : last;
  }

  // Consumes the symbol around it, with the shares [begin, begin + share).
  ATL_CODEC_FN void Take(uint64_t begin, uint64_t share) {
    code_ -= unit_ * begin;
    range_ = unit_ * share;
    while (range_ < (uint64_t{1} << 56)) {
      Shift();
      range_ <<= 8;
    }
  }

 private:
  ATL_CODEC_FN void Shift() {
    code_ = code_ << 8 | (next_ < end_ ? *next_++ : 0);
  }

  const uint8_t* next_;
  const uint8_t* end_;
  uint64_t code_ = 0;
  uint64_t range_ = ~uint64_t{0};
  uint64_t unit_ = 0;
};

// A range of places to be coded.
struct SubsetNode {
  uint16_t begin;  // Its first place.
  uint8_t level;   // It has 2^level places,
  uint8_t count;   // of which `count` (> 0) are taken.
};

// Most nodes on the stack: a right half for each level, and the current one.
inline constexpr int kSubsetStack = kSubsetLevelMax + 1;

// Writes which `k` (1 to 64) of 2^`level` places are taken. `places` is
// ascending; `code` has SubsetBytes(k) bytes.
// Requires: level == SubsetLevel(k).
ATL_CODEC_FN void EncodeSubset(const SubsetModel& model, int level, size_t k,
                               const uint16_t* places, uint8_t* code) {
  RangeEncoder coder(code, SubsetBytes(k));
  SubsetNode stack[kSubsetStack];
  int depth = 0;
  stack[depth++] = {0, static_cast<uint8_t>(level), static_cast<uint8_t>(k)};
  while (depth > 0) {
    const SubsetNode node = stack[--depth];
    const uint32_t size = uint32_t{1} << node.level;
    if (node.count == size) {
      places += node.count;
      continue;
    }
    if (node.count == 1) {
      coder.Put(*places++ - node.begin, 1, node.level);
      continue;
    }
    const uint32_t middle = node.begin + size / 2;
    uint8_t left = 0;
    while (left < node.count && places[left] < middle) ++left;
    const uint32_t* shares = model.Row(node.level, node.count);
    coder.Put(shares[left], SubsetModel::Share(shares, node.count, left),
              SubsetModel::kBits);
    const uint8_t half = static_cast<uint8_t>(node.level - 1);
    const uint8_t right = static_cast<uint8_t>(node.count - left);
    if (right > 0) {
      stack[depth++] = {static_cast<uint16_t>(middle), half, right};
    }
    if (left > 0) stack[depth++] = {node.begin, half, left};
  }
  coder.Finish();
}

// Reads what EncodeSubset wrote. Any bytes give `k` ascending places below
// 2^level.
ATL_CODEC_FN void DecodeSubset(const SubsetModel& model, int level, size_t k,
                               const uint8_t* code, uint16_t* places) {
  RangeDecoder coder(code, SubsetBytes(k));
  SubsetNode stack[kSubsetStack];
  int depth = 0;
  stack[depth++] = {0, static_cast<uint8_t>(level), static_cast<uint8_t>(k)};
  while (depth > 0) {
    const SubsetNode node = stack[--depth];
    const uint32_t size = uint32_t{1} << node.level;
    if (node.count == size) {
      for (uint32_t i = 0; i < size; ++i) {
        *places++ = static_cast<uint16_t>(node.begin + i);
      }
      continue;
    }
    if (node.count == 1) {
      const uint64_t place = coder.Peek(node.level);
      coder.Take(place, 1);
      *places++ = static_cast<uint16_t>(node.begin + place);
      continue;
    }
    const uint32_t* shares = model.Row(node.level, node.count);
    const uint32_t at = static_cast<uint32_t>(coder.Peek(SubsetModel::kBits));
    const uint8_t left =
        static_cast<uint8_t>(SubsetModel::Find(shares, node.count, at));
    coder.Take(shares[left], SubsetModel::Share(shares, node.count, left));
    const uint8_t half = static_cast<uint8_t>(node.level - 1);
    const uint8_t right = static_cast<uint8_t>(node.count - left);
    if (right > 0) {
      stack[depth++] = {static_cast<uint16_t>(node.begin + size / 2), half,
                        right};
    }
    if (left > 0) stack[depth++] = {node.begin, half, left};
  }
}

}  // namespace atl::codec
