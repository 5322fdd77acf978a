#include "coordinator/core/state/guard.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Values {
  double norm = 1;
  std::optional<double> loss;
};

// Judges and notes one commit after the other.
class Commits {
 public:
  // Returns why the commit is outside.
  std::string Commit(double norm, std::optional<double> loss = std::nullopt) {
    const std::string outside = FindDamage(guard_, norm, loss);
    NoteCommit(norm, loss, outside, guard_);
    return outside;
  }
  const storage::v1::FragmentGuard& guard() const { return guard_; }
  storage::v1::FragmentGuard& guard() { return guard_; }

 private:
  storage::v1::FragmentGuard guard_;
};

// A run's usual state: norms about 1, losses about 3.
Commits MakeSteady(int count = 64) {
  Commits run;
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(run.Commit(1 + 0.1 * (i % 3), 3 + 0.05 * (i % 4)), "") << i;
  }
  return run;
}

TEST(GuardTest, ANormOrALossFarAboveTheNewestIsOutside) {
  for (const double norm : {1e30, 100.0, 15.0}) {
    EXPECT_THAT(MakeSteady().Commit(norm, 3.0), HasSubstr("its norm, "));
  }
  EXPECT_EQ(MakeSteady().Commit(5, 3.0), "");
  EXPECT_EQ(MakeSteady().Commit(0, 3.0), "");
  for (const double loss : {5.0, 11.0, 1e30}) {
    EXPECT_THAT(MakeSteady().Commit(1, loss), HasSubstr("its training loss, "));
  }
  EXPECT_EQ(MakeSteady().Commit(1, 4.0), "");
  EXPECT_EQ(MakeSteady().Commit(1, 0.0), "");
  EXPECT_THAT(MakeSteady().Commit(1e30),
              HasSubstr("1e+30, is above 12 (the newest 64 inside the band have "
                        "the median 1.1 and the largest 1.2)"));
}

TEST(GuardTest, TheBandCountsFromSixteenCommitsOn) {
  EXPECT_EQ(MakeSteady(15).Commit(1e30, 1e9), "");
  EXPECT_NE(MakeSteady(16).Commit(1e30, 3.0), "");
  EXPECT_NE(MakeSteady(16).Commit(1, 1e9), "");
}

TEST(GuardTest, WhatIsNotFiniteIsOutsideFromTheFirstCommitOn) {
  EXPECT_THAT(Commits().Commit(kInf), HasSubstr("norm is inf"));
  EXPECT_THAT(Commits().Commit(kNan), HasSubstr("norm is nan"));
  EXPECT_THAT(Commits().Commit(1, kNan), HasSubstr("training loss is nan"));
  EXPECT_THAT(Commits().Commit(1, kInf), HasSubstr("training loss is inf"));
}

TEST(GuardTest, NormsOfZeroMakeNoBand) {
  Commits run;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(run.Commit(0), "");
  EXPECT_THAT(run.guard().norms(), IsEmpty());
  EXPECT_EQ(run.Commit(1), "");
}

TEST(GuardTest, WhatIsOutsideDoesNotMoveTheBand) {
  Commits run = MakeSteady();
  for (int i = 0; i < 200; ++i) EXPECT_NE(run.Commit(100, 3.0), "") << i;
  EXPECT_EQ(run.guard().held_count(), 200);
  EXPECT_THAT(run.guard().norms(), SizeIs(kBandValuesMax));
}

TEST(GuardTest, EightCommitsInARowInsideEndTheSuspicion) {
  Commits run = MakeSteady();
  run.Commit(100, 3.0);
  for (int i = 0; i < 7; ++i) run.Commit(1, 3.0);
  EXPECT_EQ(run.guard().held_count(), 8);
  run.Commit(100, 3.0);
  for (int i = 0; i < 7; ++i) run.Commit(1, 3.0);
  EXPECT_EQ(run.guard().held_count(), 16);
  run.Commit(1, 3.0);
  EXPECT_EQ(run.guard().held_count(), 0);
  EXPECT_EQ(run.guard().reason(), "");
}

TEST(GuardTest, AnEvaluationIsComparedWithThreeOfItsIsland) {
  EXPECT_EQ(FindEvaluationDamage({3, 3.1}, 100), "");
  EXPECT_EQ(FindEvaluationDamage({3, 3.1}, kNan), "");
  EXPECT_EQ(FindEvaluationDamage({3, 3.1, 2.9}, 4), "");
  EXPECT_THAT(FindEvaluationDamage({3, 3.1, 2.9}, 6),
              HasSubstr("its validation loss, 6, is above 4.6"));
  EXPECT_THAT(FindEvaluationDamage({3, 3.1, 2.9}, kNan),
              HasSubstr("its evaluation failed"));
}

TEST(GuardTest, OnlyAnEvaluationEndsWhatAnEvaluationBegan) {
  Commits run = MakeSteady();
  NoteEvaluation("version 3 is bad", run.guard());
  EXPECT_EQ(run.guard().held_count(), 1);
  for (int i = 0; i < 20; ++i) run.Commit(1, 3.0);
  EXPECT_EQ(run.guard().held_count(), 21);
  NoteEvaluation("", run.guard());
  run.Commit(1, 3.0);
  EXPECT_EQ(run.guard().held_count(), 0);
}

// --- Ordinary runs -----------------------------------------------------------

// The share of the peak that a rate with warm-up and a cosine has.
double Rate(int at, int warmup, int count) {
  if (at < warmup) return (at + 1.0) / warmup;
  return 0.55 + 0.45 * std::cos(M_PI * (at - warmup) / (count - warmup));
}

// The norm of the mean of `islands` outer gradients with this cosine.
double OfIslands(double islands, double cosine) {
  return std::sqrt(cosine + (1 - cosine) / islands);
}

struct Ordinary {
  std::string name;
  std::function<Values(int at, std::mt19937_64& random)> make;
};

std::vector<Ordinary> ListOrdinary() {
  using Normal = std::normal_distribution<double>;
  const auto loss_at = [](int at) { return 2.5 + 8.3 * std::exp(-at / 60.0); };
  return {
      {"strict, warm-up of 200 rounds, cosine to a tenth",
       [=](int at, std::mt19937_64& random) {
         return Values{Rate(at, 200, 2000) * std::exp(Normal(0, 0.1)(random)),
                       loss_at(at) + Normal(0, 0.05)(random)};
       }},
      {"warm-up within the first round",
       [=](int at, std::mt19937_64& random) {
         return Values{(at == 0 ? 0.1 : 1) * Rate(at, 1, 2000) *
                           std::exp(Normal(0, 0.2)(random)),
                       loss_at(at) + Normal(0, 0.1)(random)};
       }},
      {"streaming: first versions have small norms",
       [=](int at, std::mt19937_64& random) {
         return Values{std::min(1.0, 0.15 * (at + 1)) *
                           std::exp(Normal(0, 0.4)(random)),
                       loss_at(at) + Normal(0, 0.1)(random)};
       }},
      {"async: one contribution a commit, of islands with 1 to 20 steps, whose "
       "data differ",
       [=](int at, std::mt19937_64& random) {
         const double island = static_cast<double>(random() % 8);
         return Values{(1 + island * 2.7) / 20 *
                           std::exp(Normal(0, 0.3)(random)),
                       loss_at(at) * (0.7 + 0.1 * island) +
                           Normal(0, 0.1)(random)};
       }},
      {"1 to 64 islands with independent gradients",
       [=](int at, std::mt19937_64& random) {
         const double islands = at < 300 ? 64 : 1 + random() % 64;
         return Values{OfIslands(islands, 0) * std::exp(Normal(0, 0.1)(random)),
                       loss_at(at) + Normal(0, 0.2)(random)};
       }},
      {"after a restore: fresh optimizers, and a loss that is a fifth higher",
       [=](int at, std::mt19937_64& random) {
         const int since = at % 250;
         const bool restored = at >= 250 && since < 20;
         return Values{(restored ? 0.1 + since * 0.2 : 1) *
                           std::exp(Normal(0, 0.1)(random)),
                       loss_at(at) * (restored ? 1.2 : 1) +
                           Normal(0, 0.05)(random)};
       }},
      {"a small loss that varies by itself",
       [](int /*at*/, std::mt19937_64& random) {
         return Values{std::exp(Normal(0, 0.5)(random)),
                       0.01 * std::exp(Normal(0, 0.4)(random))};
       }},
      {"a loss below 0, as rewards give",
       [](int /*at*/, std::mt19937_64& random) {
         return Values{std::exp(Normal(0, 0.5)(random)),
                       Normal(-0.2, 0.3)(random)};
       }},
  };
}

// Norms of real runs of a small llama: three islands, AdamW with a warm-up.
const std::vector<std::pair<std::string, std::vector<double>>>& ListRecorded() {
  static const auto& recorded =
      *new std::vector<std::pair<std::string, std::vector<double>>>{
          {"strict, warm-up of 15 rounds",
           {0.051, 0.13, 0.2, 0.27, 0.35, 0.41, 0.46, 0.53, 0.56, 0.55, 0.49,
            0.48, 0.65, 0.61, 0.69, 0.86, 0.59, 0.46, 0.46, 0.45, 0.36, 0.39,
            0.44, 0.39, 0.32, 0.32, 0.38, 0.51, 0.46, 0.35, 0.28, 0.28, 0.35,
            0.37, 0.32, 0.27, 0.25, 0.31, 0.34, 0.37, 0.31, 0.32, 0.39, 0.48,
            0.51, 0.53, 0.47, 0.41, 0.4, 0.49, 0.54, 0.52, 0.44, 0.33, 0.3,
            0.36, 0.42, 0.44, 0.44, 0.37, 0.31, 0.28, 0.3, 0.35, 0.4, 0.41,
            0.39, 0.32, 0.27, 0.28, 0.31, 0.32, 0.3, 0.28, 0.25, 0.24, 0.21,
            0.19, 0.18, 0.18, 0.19, 0.2, 0.21, 0.21, 0.21, 0.19, 0.17, 0.15,
            0.13, 0.12, 0.12, 0.12, 0.13, 0.13, 0.12, 0.11, 0.11, 0.1, 0.097,
            0.096, 0.092, 0.095, 0.094, 0.093, 0.089, 0.084, 0.072, 0.066,
            0.067, 0.064, 0.058, 0.055, 0.056, 0.057, 0.057, 0.06, 0.06,
            0.058, 0.061, 0.062}},
          {"async, one contribution a commit",
           {0.0083, 0.057, 0.059, 0.034, 0.22, 0.31, 0.1, 0.43, 0.54, 0.16,
            0.67, 0.76, 0.22, 0.9, 0.95, 0.26, 1.1, 1.1, 0.29, 1.1, 1, 0.28,
            1, 1, 0.27, 0.96, 0.97, 0.26, 0.94, 0.87, 0.24, 0.82, 0.22, 0.73,
            0.66, 0.21, 0.59, 0.54, 0.2, 0.57, 0.51, 0.18, 0.64, 0.64, 0.18,
            0.73, 0.74, 0.17, 0.86, 0.86, 0.17, 0.84, 0.7, 0.17, 0.53, 0.56,
            0.13, 0.65, 0.7, 0.13, 0.74, 0.13, 0.78, 0.14, 0.78, 0.76, 0.14,
            0.73, 0.66, 0.11, 0.58, 0.5, 0.098, 0.46, 0.34, 0.084, 0.33, 0.24,
            0.073, 0.21, 0.17, 0.065, 0.15, 0.16, 0.059, 0.13, 0.15, 0.05,
            0.14, 0.14, 0.046, 0.15, 0.14, 0.041, 0.15, 0.13, 0.039, 0.15,
            0.13, 0.034, 0.13, 0.12, 0.031, 0.1, 0.11, 0.026, 0.088, 0.023,
            0.08, 0.088, 0.02, 0.07, 0.056, 0.018, 0.061, 0.017, 0.05, 0.057,
            0.018, 0.038}},
          {"streaming, blended, E3M0, fragment 0",
           {0.029, 0.13, 0.23, 0.27, 0.18, 0.15, 0.17, 0.31, 0.36, 0.4, 0.48,
            0.38, 0.45, 0.39, 0.38, 0.34, 0.33, 0.3, 0.29, 0.29, 0.3, 0.33,
            0.28, 0.28, 0.26, 0.28, 0.24, 0.26, 0.24, 0.23, 0.26, 0.23, 0.24,
            0.24, 0.24, 0.23, 0.23, 0.22, 0.21, 0.21, 0.22, 0.22, 0.2, 0.2,
            0.21, 0.2, 0.19, 0.18, 0.18, 0.18, 0.18, 0.17, 0.17, 0.17, 0.16,
            0.15, 0.15, 0.15, 0.14, 0.14, 0.13, 0.12, 0.13, 0.13, 0.12, 0.12,
            0.11, 0.11, 0.097, 0.095, 0.093, 0.091, 0.084, 0.078, 0.072,
            0.076, 0.07, 0.063, 0.062, 0.059, 0.062, 0.061, 0.054, 0.049,
            0.052, 0.05, 0.049, 0.045, 0.04, 0.038, 0.038, 0.035, 0.036,
            0.035, 0.034, 0.03, 0.03, 0.031, 0.029, 0.03}},
          {"streaming, blended, E3M0, fragment 1",
           {0.16, 0.29, 0.53, 0.64, 0.69, 0.73, 0.58, 0.38, 0.47, 0.55, 0.49,
            0.42, 0.43, 0.39, 0.4, 0.39, 0.37, 0.33, 0.34, 0.32, 0.33, 0.32,
            0.3, 0.31, 0.33, 0.31, 0.29, 0.31, 0.31, 0.36, 0.34, 0.27, 0.31,
            0.29, 0.28, 0.29, 0.27, 0.27, 0.28, 0.27, 0.25, 0.25, 0.28, 0.26,
            0.24, 0.28, 0.26, 0.23, 0.24, 0.24, 0.27, 0.21, 0.19, 0.23, 0.19,
            0.18, 0.23, 0.21, 0.17, 0.17, 0.18, 0.16, 0.16, 0.16, 0.15, 0.14,
            0.14, 0.16, 0.11, 0.11, 0.11, 0.099, 0.11, 0.097, 0.11, 0.089,
            0.089, 0.084, 0.084, 0.08, 0.081, 0.077, 0.064, 0.068, 0.066,
            0.062, 0.054, 0.053, 0.049, 0.047, 0.043, 0.043, 0.037, 0.04,
            0.039, 0.037, 0.035, 0.037, 0.042, 0.039}},
      };
  return recorded;
}

TEST(GuardTest, RecordedRunsStayInsideAndDamageIsSeen) {
  for (const auto& [name, norms] : ListRecorded()) {
    Commits run;
    for (size_t at = 0; at < norms.size(); ++at) {
      ASSERT_EQ(run.Commit(norms[at]), "") << name << ", commit " << at;
      if (at < kBandValuesMin) continue;
      EXPECT_NE(FindDamage(run.guard(), 1e30, std::nullopt), "") << name;
      std::vector<double> newest(run.guard().norms().begin(),
                                 run.guard().norms().end());
      std::sort(newest.begin(), newest.end());
      const double median = newest[newest.size() / 2];
      EXPECT_NE(FindDamage(run.guard(), 100 * median, std::nullopt), "")
          << name << ", commit " << at;
    }
  }
}

TEST(GuardTest, OrdinaryRunsStayInside) {
  for (const Ordinary& ordinary : ListOrdinary()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      std::mt19937_64 random(seed);
      Commits run;
      for (int at = 0; at < 2000; ++at) {
        const Values values = ordinary.make(at, random);
        ASSERT_EQ(run.Commit(values.norm, values.loss), "")
            << ordinary.name << ", seed " << seed << ", commit " << at;
      }
    }
  }
}

// The same runs, so that the band is not just wide.
TEST(GuardTest, DamageInAnOrdinaryRunIsSeen) {
  for (const Ordinary& ordinary : ListOrdinary()) {
    std::mt19937_64 random(1);
    Commits run;
    for (int at = 0; at < 1000; ++at) {
      const Values values = ordinary.make(at, random);
      run.Commit(values.norm, values.loss);
    }
    const Values values = ordinary.make(1000, random);
    std::vector<double> norms(run.guard().norms().begin(),
                              run.guard().norms().end());
    std::sort(norms.begin(), norms.end());
    for (const double norm : {1e30, 100 * norms[norms.size() / 2]}) {
      EXPECT_NE(FindDamage(run.guard(), norm, values.loss), "")
          << ordinary.name << ", norm " << norm;
    }
    EXPECT_NE(FindDamage(run.guard(), values.norm, kNan), "") << ordinary.name;
    EXPECT_NE(FindDamage(run.guard(), values.norm, *values.loss + 50), "")
        << ordinary.name;
  }
}

}  // namespace
}  // namespace atl::coordinator
