// The fuzzers' short run: random inputs and mutations of them, without
// libFuzzer's guidance. The long run is run_fuzzers.sh.

#include "base/codec/testing/fuzz/targets.h"

#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::codec {
namespace {

constexpr int kInputs = 8000;

class FuzzTest : public ::testing::Test {
 protected:
  FuzzTest() : seed_(std::random_device()()), random_(seed_) {
    // Printed first: a violation ends the process.
    std::printf("seed: %u\n", seed_);
    RecordProperty("seed", std::to_string(seed_));
  }

  // Calls `target` with kInputs inputs. One in two is a mutation of the last: a
  // changed byte, bits of a float's exponent, a shorter or a longer end.
  void Run(const std::function<void(const uint8_t*, size_t)>& target) {
    std::vector<uint8_t> input;
    for (int i = 0; i < kInputs; ++i) {
      if (input.size() < 4 || random_() % 2 == 0) {
        input.resize(4 + random_() % (i % 8 == 0 ? 4500 : 100));
        for (uint8_t& byte : input) byte = static_cast<uint8_t>(random_());
        // Mostly small values; otherwise almost no input is finite everywhere.
        if (random_() % 2 == 0) {
          for (size_t at = 6; at < input.size(); at += 4) input[at] = 0x3c;
        }
      } else {
        for (unsigned change = 1 + random_() % 4; change > 0; --change) {
          input[random_() % input.size()] = static_cast<uint8_t>(random_());
        }
        if (random_() % 4 == 0) input.push_back(0x7f);
        if (random_() % 4 == 0) input.pop_back();
      }
      target(input.data(), input.size());
    }
  }

  const unsigned seed_;
  std::mt19937 random_;
};

TEST_F(FuzzTest, AnyBytesDecodeAlikeOnEveryPath) { Run(FuzzDecode); }

TEST_F(FuzzTest, AnyValuesEncodeAlikeOnEveryPath) { Run(FuzzEncode); }

}  // namespace
}  // namespace atl::codec
