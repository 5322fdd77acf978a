#include "cli/commands/plan_kubernetes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status/status_macros.h"
#include "cli/commands/recipes.h"
#include "cli/kubernetes/resources.h"

namespace atl::cli {
namespace {

// The exchange of the run file, else that of the preset diloco.
absl::StatusOr<ResourceInput> ReadResourceInput(const PlanOptions& options,
                                                const Subject& subject) {
  ResourceInput input;
  input.model = subject.model;
  input.tokens_a_step = subject.tokens_a_step;
  if (subject.run.has_value()) {
    input.run = *subject.run;
    input.exchange = worker::ExchangeOfRun(input.run);
  } else {
    ASSIGN_OR_RETURN(const std::vector<worker::Recipe> recipes, ReadRecipes());
    for (const worker::Recipe& recipe : recipes) {
      if (recipe.preset->name != "diloco") continue;
      input.run = recipe.spec;
      ASSIGN_OR_RETURN(input.exchange,
                       worker::ExchangeOfRecipe(recipe, subject.model));
    }
    input.run.mutable_schedule()->set_island_count_min(kPlannedIslandCount);
  }
  ASSIGN_OR_RETURN(input.exchange, Change(options, std::move(input.exchange)));
  input.island_count = options.islands > 0
                           ? options.islands
                           : input.run.schedule().island_count_min();
  input.server_count = std::max(
      1, options.servers > 0 ? options.servers : input.run.server_count());
  return input;
}

}  // namespace

absl::Status PlanKubernetes(Context& context, const PlanOptions& options,
                            const Subject& subject) {
  ASSIGN_OR_RETURN(const ResourceInput input,
                   ReadResourceInput(options, subject));
  const Json programs = ResourcesData(input);
  if (context.output().format() == OutputFormat::kJsonl) {
    context.output().PrintList("programs", programs, "");
    return absl::OkStatus();
  }
  context.output().Print(
      {{"programs", programs}, {"values", ResourcesValues(input)}},
      ResourcesText(input));
  return absl::OkStatus();
}

}  // namespace atl::cli
