#include "coordinator/core/rounds/verdicts.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/gram.h"
#include "base/layout/merge_groups.h"
#include "base/status/status_macros.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

// The sum of the shards' statistics of a sealed round.
struct Statistics {
  std::vector<int32_t> missing;  // Shards without statistics yet.
  std::vector<GramMatrix> grams;
};

// INVALID_ARGUMENT: the statistics of a shard do not fit the round.
absl::StatusOr<Statistics> CollectStatistics(const RunState& state,
                                             const Observations& observed,
                                             int32_t fragment) {
  const v1::Seal& seal = state.fragments()[fragment].sealed.seal();
  const MergeGroups groups(state.layout(), state.spec(), fragment);
  Statistics all;
  all.grams.assign(groups.count(), GramMatrix(seal.contributions_size()));
  for (const int32_t shard : ListShards(state, fragment)) {
    const ObservedShard& seen = observed.shards[shard];
    const v1::RoundStatistics* const statistics =
        FindOfSeal(seen, seen.report.statistics(), seal);
    if (statistics == nullptr) {
      all.missing.push_back(shard);
      continue;
    }
    if (statistics->grams_size() != groups.count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", shard, " reports ", statistics->grams_size(),
                       " Gram matrices, not ", groups.count()));
    }
    for (int g = 0; g < groups.count(); ++g) {
      ASSIGN_OR_RETURN(const GramMatrix gram,
                       GramMatrix::FromBytes(seal.contributions_size(),
                                             statistics->grams(g)));
      all.grams[g] += gram;
    }
  }
  return all;
}

// INTERNAL: a sum overflows.
absl::StatusOr<VerdictInput> MakeInput(const FragmentState& fragment,
                                       std::vector<GramMatrix> grams) {
  VerdictInput input;
  const v1::Seal& seal = fragment.sealed.seal();
  for (const GramMatrix& gram : grams) {
    if (gram.overflow()) {
      return absl::InternalError(
          "an inner product of contributions is not finite or overflows");
    }
  }
  for (int i = 0; i < seal.contributions_size(); ++i) {
    input.weights.push_back(
        static_cast<double>(seal.contributions(i).weight()));
    // Summed over all groups: the fragment without tensors that have no group.
    ExactSum square;
    for (const GramMatrix& gram : grams) square += gram.at(i, i);
    if (square.overflow()) {
      return absl::InternalError("the norm of a contribution overflows");
    }
    input.norms.push_back(std::sqrt(square.ToDouble()));
  }
  input.grams = std::move(grams);
  input.past_median_norms.assign(fragment.median_norms.begin(),
                                 fragment.median_norms.end());
  return input;
}

Decision PauseWithoutVerdict(const RunState& state, int32_t fragment,
                             const absl::Status& status) {
  return DropAndPause(
      state, fragment,
      absl::StrCat(RoundName(state, fragment), ": ", status.message()),
      "its round's merge has no verdict");
}

}  // namespace

bool WaitsForVerdict(const RunState& state, int32_t fragment) {
  const FragmentState& round = state.fragments()[fragment];
  return round.phase == RoundPhase::kSealed &&
         !round.sealed.seal().has_verdict() &&
         MakeVerdictRule(state.spec().outer().merge()) != nullptr;
}

Decision DecideVerdict(const RunState& state, const Observations& observed,
                       int32_t fragment) {
  const FragmentState& round = state.fragments()[fragment];
  const v1::Seal& seal = round.sealed.seal();
  const std::string name = RoundName(state, fragment);
  absl::StatusOr<Statistics> statistics =
      CollectStatistics(state, observed, fragment);
  if (!statistics.ok()) {
    return PauseWithoutVerdict(state, fragment, statistics.status());
  }
  if (!statistics->missing.empty()) {
    return {{},
            absl::StrCat(name, ": sealed; waits for the statistics of shards ",
                         absl::StrJoin(statistics->missing, ", "))};
  }
  const auto rule = MakeVerdictRule(state.spec().outer().merge());
  const absl::StatusOr<VerdictInput> input =
      MakeInput(round, std::move(statistics->grams));
  absl::StatusOr<Coefficients> coefficients =
      input.ok() ? rule->Decide(*input)
                 : absl::StatusOr<Coefficients>(input.status());
  if (!coefficients.ok()) {
    return PauseWithoutVerdict(state, fragment, coefficients.status());
  }
  storage::v1::Record record;
  storage::v1::RoundJudged& judged = *record.mutable_round_judged();
  judged.set_fragment(fragment);
  judged.set_version(seal.version());
  judged.set_attempt(seal.attempt());
  v1::Verdict& verdict = *judged.mutable_verdict();
  for (const std::vector<float>& row : coefficients->rows) {
    v1::CoefficientRow& added = *verdict.add_rows();
    for (const float value : row) added.add_coefficients(value);
  }
  verdict.set_median_norm(ComputeMedian(input->norms));
  verdict.set_reason(coefficients->reason);
  return {{std::move(record)},
          absl::StrCat(rule->name(), " of ", name, " ", coefficients->reason)};
}

}  // namespace atl::coordinator
