#include "base/obs/cpu_model.h"

#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(CpuModelTest, TakesTheFirstModelName) {
  EXPECT_EQ(CpuModelName("processor\t: 0\nmodel name\t: A CPU @ 2: 3 GHz \n"
                         "processor\t: 1\nmodel name\t: Another\n",
                         "cpu"),
            "A CPU @ 2: 3 GHz");
}

TEST(CpuModelTest, SaysTheOtherWordWhereTheSystemSaysNone) {
  EXPECT_EQ(CpuModelName("", "cpu"), "cpu");
  EXPECT_EQ(CpuModelName("model name\t:\nmodel names : x\n", "cpu"), "cpu");
}

TEST(CpuModelTest, BoundsTheName) {
  EXPECT_EQ(
      CpuModelName("model name : " + std::string(1000, 'x'), "cpu").size(),
      128u);
}

}  // namespace
}  // namespace atl
