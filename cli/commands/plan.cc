#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/codec.h"
#include "base/flags/flags.h"
#include "base/layout/run_bounds.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/plan_subject.h"
#include "cli/commands/recipes.h"
#include "cli/kubernetes/resources.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "worker/api/planner.h"

namespace atl::cli {
namespace {

namespace planner = worker::planner;

struct Scene {
  planner::Compute compute;
  planner::Link link;
  planner::Service service;
  planner::Flow flow;
};

// One planned exchange: a preset's, or the run file's own.
struct Row {
  std::string name;
  const planner::Preset* preset = nullptr;  // Null: the run file's own.
  planner::Exchange exchange;
  planner::Service service;
  planner::Forecast forecast;
};

// Parses `text`, or `other` (of --link) if `text` is empty.
absl::StatusOr<double> Bandwidth(const std::string& flag,
                                 const std::string& text,
                                 const std::string& other) {
  if (text.empty() && other.empty()) {
    return UsageError(absl::StrCat(flag, " is missing"),
                      "Give --link 20Mb/s, or --up and --down.");
  }
  absl::StatusOr<double> rate = ParseBandwidth(text.empty() ? other : text);
  RETURN_IF_ERROR(Named(text.empty() ? "--link" : flag, rate.status()));
  return rate;
}

absl::StatusOr<Scene> ReadScene(const PlanOptions& options,
                                const Subject& subject) {
  Scene scene;
  scene.compute.step_seconds =
      static_cast<double>(subject.tokens_a_step) / options.tokens_per_second;
  if (options.slowest_tokens_per_second > 0) {
    scene.compute.slowest_ratio = std::max(
        1.0, options.tokens_per_second / options.slowest_tokens_per_second);
  }
  ASSIGN_OR_RETURN(scene.link.up_bytes_per_second,
                   Bandwidth("--up", options.up, options.link));
  ASSIGN_OR_RETURN(scene.link.down_bytes_per_second,
                   Bandwidth("--down", options.down, options.link));
  const absl::StatusOr<double> rtt = ParseSeconds(options.rtt);
  RETURN_IF_ERROR(Named("--rtt", rtt.status()));
  scene.link.round_trip_seconds = *rtt;
  scene.service =
      worker::MakeService(subject.run.has_value() ? subject.run->durability()
                                                  : v1::DURABILITY_MACHINE);
  scene.flow = worker::MakeFlow(
      subject.run.has_value() ? std::max(1, subject.run->server_count()) : 1);
  ASSIGN_OR_RETURN(scene.service.merge_bytes_per_second,
                   Bandwidth("--merge", options.merge, ""));
  ASSIGN_OR_RETURN(scene.service.encode_bytes_per_second,
                   Bandwidth("--codec", options.codec, ""));
  scene.service.decode_bytes_per_second = scene.service.encode_bytes_per_second;
  if (!options.server_link.empty()) {
    ASSIGN_OR_RETURN(scene.service.server_bytes_per_second,
                     Bandwidth("--server-link", options.server_link, ""));
  }
  scene.service.island_count = options.islands;
  if (options.islands == 0) {
    scene.service.island_count =
        subject.run.has_value() ? subject.run->schedule().island_count_min()
                                : kPlannedIslandCount;
  }
  return scene;
}

absl::Status FragmentsError(const absl::Status& status,
                            const Subject& subject) {
  return Named("--fragments",
               UsageError(status.message(),
                          subject.model.spec.has_value()
                              ? ""
                              : "--layers gives the number of layers."));
}

// The fragment count of a recipe that streams: --fragments, else at most
// --inner-steps. 0: the recipe's own count.
int64_t FragmentsFor(const PlanOptions& options, const worker::Recipe& recipe,
                     const Subject& subject) {
  if (options.fragments > 0 || options.inner_steps == 0) {
    return options.fragments;
  }
  const int64_t own = worker::CountFragments(
      subject.model.layer_count, recipe.layers_a_fragment,
      recipe.spec.layout().fragment_count());
  return own <= options.inner_steps ? 0 : options.inner_steps;
}

absl::StatusOr<std::vector<Row>> MakeRows(const PlanOptions& options,
                                          const Subject& subject,
                                          const Scene& scene) {
  std::vector<Row> rows;
  if (subject.run.has_value()) {
    Row row;
    row.name = "(as it is)";
    row.exchange = worker::ExchangeOfRun(*subject.run);
    row.service = scene.service;
    rows.push_back(std::move(row));
  }
  ASSIGN_OR_RETURN(const std::vector<worker::Recipe> recipes, ReadRecipes());
  for (const worker::Recipe& recipe : recipes) {
    Row row;
    row.name = std::string(recipe.preset->name);
    row.preset = recipe.preset;
    const bool streams = recipe.spec.schedule().fragment_schedule() ==
                         v1::FRAGMENT_SCHEDULE_STAGGERED;
    absl::StatusOr<planner::Exchange> exchange = worker::ExchangeOfRecipe(
        recipe, subject.model,
        streams ? FragmentsFor(options, recipe, subject) : 0);
    if (!exchange.ok()) {
      return options.fragments > 0
                 ? FragmentsError(exchange.status(), subject)
                 : UsageError(exchange.status().message());
    }
    ASSIGN_OR_RETURN(row.exchange, Change(options, *std::move(exchange)));
    row.service = worker::ServiceOfRecipe(scene.service, recipe);
    rows.push_back(std::move(row));
  }
  for (Row& row : rows) {
    ASSIGN_OR_RETURN(
        row.forecast,
        planner::Predict(row.exchange, scene.compute, scene.link,
                         planner::OfIslands(row.service, row.exchange),
                         scene.flow));
  }
  return rows;
}

std::string Percent(double share) {
  return absl::StrFormat(share < 0.001 ? "%.1g %%" : "%.1f %%", 100 * share);
}

std::string RoundTime(double seconds) {
  return seconds < 10 ? absl::StrFormat("%.2fs", seconds)
                      : FormatSpan(absl::Seconds(seconds));
}

int64_t AskedIslands(const Row& row) {
  return planner::AskedIslandCount(row.exchange, row.service.island_count);
}

// Seconds that all islands take for `subject.token_count` tokens.
double ToSeconds(const Row& row, const Subject& subject) {
  const double tokens_a_round =
      static_cast<double>(subject.tokens_a_step) *
      static_cast<double>(row.exchange.inner_step_count) *
      static_cast<double>(AskedIslands(row));
  return static_cast<double>(subject.token_count) / tokens_a_round *
         row.forecast.round_seconds;
}

Json RowToData(const Row& row, const Subject& subject,
               const planner::Choice& take) {
  const planner::Forecast& forecast = row.forecast;
  Json data;
  data["preset"] = row.name;
  data["take"] = row.preset != nullptr && take.candidate != nullptr &&
                 take.candidate->preset == row.preset;
  data["utilization"] = forecast.utilization;
  data["bound"] = std::string(planner::BoundName(forecast.bound));
  data["why"] = forecast.why;
  data["round_seconds"] = forecast.round_seconds;
  data["seconds"] = ToSeconds(row, subject);
  data["compute_seconds"] = forecast.compute_seconds;
  data["up_bytes"] = forecast.up_bytes;
  data["down_bytes"] = forecast.down_bytes;
  data["up_bytes_per_hour"] = forecast.up_bytes_per_hour;
  data["down_bytes_per_hour"] = forecast.down_bytes_per_hour;
  data["bytes_per_second_for_95"] = forecast.bytes_per_second_for_95;
  data["inner_step_count"] = row.exchange.inner_step_count;
  data["fragment_count"] = row.exchange.fragment_elements.size();
  data["overlap_step_count"] = row.exchange.overlap_step_count;
  data["ahead_step_count"] = row.exchange.ahead_step_count;
  data["asked_island_count"] = AskedIslands(row);
  data["up_codec"] = std::string(codec::CodecName(row.exchange.up_codec));
  data["down_codec"] = std::string(codec::CodecName(row.exchange.down_codec));
  data["price"] = row.preset == nullptr ? "" : std::string(row.preset->price);
  return data;
}

// The bandwidth at which an island computes 95 % of the time, or `never`.
std::string FullAt(const planner::Forecast& forecast, const char* never) {
  return forecast.bytes_per_second_for_95 > 0
             ? FormatBandwidth(forecast.bytes_per_second_for_95)
             : never;
}

Json ChoiceToData(const planner::Choice& choice) {
  if (choice.candidate == nullptr) return nullptr;
  Json data;
  data["preset"] = std::string(choice.candidate->preset->name);
  data["why"] = choice.why;
  return data;
}

std::string MakeTable(const std::vector<Row>& rows, const Subject& subject) {
  std::vector<std::string> head = {"PRESET", ">COMPUTES", ">ROUND"};
  if (subject.token_count > 0) {
    head.push_back(absl::StrCat(">", FormatSize(subject.token_count), " IN"));
  }
  for (const char* title :
       {">UP", ">DOWN", ">UP/H", ">DOWN/H", ">95 % AT", "BOUND BY"}) {
    head.emplace_back(title);
  }
  Table table(std::move(head));
  const auto hourly = [](double bytes) {
    return FormatBytes(static_cast<int64_t>(std::min(bytes, 9e18)));
  };
  for (const Row& row : rows) {
    const planner::Forecast& forecast = row.forecast;
    std::vector<std::string> cells = {row.name, Percent(forecast.utilization),
                                      RoundTime(forecast.round_seconds)};
    if (subject.token_count > 0) {
      cells.push_back(RoundTime(ToSeconds(row, subject)));
    }
    for (const std::string& cell :
         {FormatBytes(forecast.up_bytes), FormatBytes(forecast.down_bytes),
          hourly(forecast.up_bytes_per_hour),
          hourly(forecast.down_bytes_per_hour), FullAt(forecast, "never"),
          std::string(planner::BoundName(forecast.bound))}) {
      cells.push_back(cell);
    }
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

std::string Assumptions(const Subject& subject, const Scene& scene) {
  return absl::StrFormat(
      "%s parameters, %d layers; a step of %d tokens takes %.3g s; %d islands; "
      "up %s, down %s, round trip %.3g ms, %.0f %% of the bandwidth is "
      "payload.\n"
      "UP and DOWN are an island's payload per round, UP/H and DOWN/H per "
      "hour. 95 %% AT is the bandwidth\n"
      "each way at which an island computes 95 %% of the time; never: "
      "something other than bandwidth is the limit.\n"
      "Servers merge %s/s of f32, an island encodes or decodes %s/s. A "
      "commit takes %.3g ms, a local checkpoint %.3g ms.\n",
      FormatSize(subject.model.element_count), subject.model.layer_count,
      subject.tokens_a_step, scene.compute.step_seconds,
      scene.service.island_count,
      FormatBandwidth(scene.link.up_bytes_per_second),
      FormatBandwidth(scene.link.down_bytes_per_second),
      1000 * scene.link.round_trip_seconds, 100 * scene.link.payload_share,
      FormatBytes(static_cast<int64_t>(scene.service.merge_bytes_per_second)),
      FormatBytes(static_cast<int64_t>(scene.service.encode_bytes_per_second)),
      1000 * scene.service.commit_seconds, 1000 * scene.service.save_seconds);
}

std::string Advice(const planner::Choice& take, const std::vector<Row>& rows,
                   const Subject& subject, const PlanOptions& options) {
  if (take.candidate == nullptr) return "";
  const planner::Preset& preset = *take.candidate->preset;
  const planner::Forecast& forecast = take.candidate->forecast;
  std::string text = absl::StrCat("Take ", preset.name, ": ", take.why, ".\n");
  if (!preset.price.empty()) {
    absl::StrAppend(&text, "Its cost: ", preset.price, ".\n");
  }
  for (const Row& row : rows) {
    if (row.preset != &preset || subject.token_count == 0) continue;
    absl::StrAppend(&text, FormatSize(subject.token_count), " tokens take ",
                    RoundTime(ToSeconds(row, subject)), ".\n");
  }
  if (forecast.utilization < options.target &&
      forecast.bound != planner::Bound::kSampling) {
    absl::StrAppend(
        &text,
        forecast.bytes_per_second_for_95 > 0
            ? absl::StrCat("At ", FullAt(forecast, ""),
                           " each way it would compute 95 %. ")
            : "No bandwidth lets it compute 95 %. ",
        "More inner steps a round (--inner-steps),\na codec of fewer bits "
        "(--up-codec, --down-codec) or a smaller model need less bandwidth.\n");
  }
  absl::StrAppend(&text,
                  options.local_data ? "Compared: only fedavg and fedopt"
                                     : "Not compared: fedavg and fedopt",
                  ", the presets for data that must stay on its island "
                  "(--local-data).\n");
  return text;
}

// A usage error: one run may not have so many islands.
absl::Status CheckIslands(const PlanOptions& options,
                          const ResourceInput& input) {
  const size_t fragment_count = input.exchange.fragment_elements.size();
  const int islands_max = IslandsMax(static_cast<int64_t>(fragment_count));
  if (input.island_count <= islands_max) return absl::OkStatus();
  return UsageError(
      absl::StrCat(options.islands > 0 ? "--islands" : "island_count_min",
                   ": must be at most ", islands_max,
                   " in a run with fragment_count ", fragment_count, ", not ",
                   input.island_count),
      "More islands are several runs: plan each of them.");
}

// The exchange of the run file, else that of the preset diloco. --fragments
// replaces its fragments.
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
  if (options.fragments > 0) {
    absl::StatusOr<std::vector<int64_t>> elements =
        worker::FragmentElements(subject.model, options.fragments,
                                 worker::FragmentAssignment::kStrided);
    if (!elements.ok()) return FragmentsError(elements.status(), subject);
    input.exchange.fragment_elements = *std::move(elements);
  }
  input.island_count = options.islands > 0
                           ? options.islands
                           : input.run.schedule().island_count_min();
  input.server_count = std::max(
      1, options.servers > 0 ? options.servers : input.run.server_count());
  RETURN_IF_ERROR(CheckIslands(options, input));
  return input;
}

// Prints the memory and disk of each program.
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

absl::Status Plan(Context& context, const PlanOptions& options) {
  ASSIGN_OR_RETURN(const Subject subject, ReadSubject(options));
  if (options.kubernetes) return PlanKubernetes(context, options, subject);
  if (options.tokens_per_second == 0) {
    return UsageError("--tokens-per-second is required",
                      "Give the tokens per second that an island trains on. "
                      "Only --kubernetes does without.");
  }
  ASSIGN_OR_RETURN(const Scene scene, ReadScene(options, subject));
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   MakeRows(options, subject, scene));
  std::vector<planner::Candidate> candidates;
  for (const Row& row : rows) {
    if (row.preset != nullptr) candidates.push_back({row.preset, row.forecast});
  }
  const planner::Choice take =
      planner::Choose(candidates, options.target, options.local_data);
  Json items = Json::array();
  for (const Row& row : rows) {
    items.push_back(RowToData(row, subject, take));
  }
  if (context.output().format() == OutputFormat::kJsonl) {
    context.output().PrintList("presets", items, "");
    return absl::OkStatus();
  }
  Json data;
  data["element_count"] = subject.model.element_count;
  data["layer_count"] = subject.model.layer_count;
  data["tokens_per_step"] = subject.tokens_a_step;
  data["token_count"] = subject.token_count;
  data["step_seconds"] = scene.compute.step_seconds;
  data["island_count"] = scene.service.island_count;
  data["up_bytes_per_second"] = scene.link.up_bytes_per_second;
  data["down_bytes_per_second"] = scene.link.down_bytes_per_second;
  data["round_trip_seconds"] = scene.link.round_trip_seconds;
  data["payload_share"] = scene.link.payload_share;
  data["target"] = options.target;
  data["presets"] = items;
  data["take"] = ChoiceToData(take);
  context.output().Print(
      data,
      absl::StrCat(MakeTable(rows, subject), "\n", Assumptions(subject, scene),
                   Advice(take, rows, subject, options)));
  return absl::OkStatus();
}

void AddNumbers(flags::Command& command, PlanOptions& options) {
  command
      .Add("--tokens-per-second", options.tokens_per_second,
           "Tokens per second that an island trains on; needed "
           "without --kubernetes")
      .Check(flags::Positive());
  command
      .Add("--slowest-tokens-per-second", options.slowest_tokens_per_second,
           "The same for the slowest island, if islands differ")
      .Check(flags::Positive());
  command.Add("--tokens-per-step", options.tokens_per_step,
              "Tokens per inner step; default: 8 sequences");
  command.Add("--tokens", options.tokens,
              "Total tokens (20B), to predict the run's duration; "
              "default: the run file's token budget");
  command
      .Add("--islands", options.islands,
           "Number of islands; default: the run file's, else 4")
      .Check(flags::Range(1, 1000000));
  command
      .Add("--layers", options.layers,
           "Number of layers, for a model given by its size")
      .Check(flags::Range(1, 1000000));
  command
      .Add("--inner-steps", options.inner_steps,
           "Inner steps per round, instead of each preset's")
      .Check(flags::Positive());
  command
      .Add("--fragments", options.fragments,
           "Number of fragments of the presets that stream, or with "
           "--kubernetes of the run")
      .Check(flags::Range(1, kFragmentsMax));
  command
      .Add("--overlap", options.overlap,
           "Inner steps between a push and applying its answer")
      .Check(flags::NotNegative());
  command
      .Add("--target", options.target,
           "Share of the time that an island should compute")
      .Check(flags::Range(0.01, 1.0))
      .ShowDefault();
}

}  // namespace

void AddPlan(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("plan", "Predict how well each preset uses a link");
  command.Footer(
      "Computes a formula from your inputs; measures nothing and contacts no\n"
      "server. COMPUTES is the share of the run's time that an island trains.\n"
      "If a round samples only some islands, the idle time of the others\n"
      "counts. 95 % AT is the bandwidth, each way, at which an island "
      "computes\n"
      "95 % of the time.\n"
      "A PRESET is the run file of that name (preset = \"streaming\") with "
      "this\n"
      "model and these islands. --inner-steps and the like replace the keys "
      "of\n"
      "the run file. With fewer inner steps the plan also shortens the "
      "overlap\n"
      "and lowers the fragment count; a run file must do that itself.\n"
      "Examples:\n"
      "  atoll plan --link 20Mb/s --rtt 40ms --model 1.2B "
      "--tokens-per-second 30000\n"
      "  atoll plan --up 5Mb/s --down 50Mb/s --model laptop "
      "--tokens-per-second 8000\n"
      "  atoll plan --model laptop --kubernetes --servers 2");
  auto options = std::make_shared<PlanOptions>();
  command
      .Add("--model", options->model,
           "Number of parameters (1.2B), directory with a config.json, "
           "run file, or preset")
      .Required();
  command.Add("--link", options->link,
              "An island's bandwidth each way: 20Mb/s, 5MB/s");
  command.Add("--up", options->up,
              "Bandwidth from the island, instead of --link");
  command.Add("--down", options->down,
              "Bandwidth to the island, instead of --link");
  command.Add("--rtt", options->rtt, "Round-trip time to the servers: 40ms")
      .ShowDefault();
  command
      .Add("--merge", options->merge,
           "Rate at which all servers together merge f32 contributions")
      .ShowDefault();
  command
      .Add("--codec", options->codec,
           "Rate at which an island encodes or decodes f32 values")
      .ShowDefault();
  command.Add("--server-link", options->server_link,
              "Bandwidth each way of all servers together");
  command.Add("--up-codec", options->up_codec,
              "Codec of outer gradients, instead of each preset's");
  command.Add("--down-codec", options->down_codec,
              "Codec of the servers' versions, instead of each preset's");
  const flags::Flag kubernetes = command.AddFlag(
      "--kubernetes", options->kubernetes,
      "Print the memory and disk of each program instead; links and rates do "
      "not matter");
  command
      .Add("--servers", options->servers,
           "Number of servers, with --kubernetes; default: the run "
           "file's, else 1")
      .Check(flags::Range(1, kServersMax))
      .Needs(kubernetes);
  command.AddFlag("--local-data", options->local_data,
                  "Data must stay on its island: compare fedavg and fedopt");
  AddNumbers(command, *options);
  SetAction(command, context, Plan, options);
}

}  // namespace atl::cli
