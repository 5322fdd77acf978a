#include "cli/commands/plan_subject.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/codec.h"
#include "base/layout/external_model.h"
#include "base/layout/layout.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/presets/presets.h"
#include "cli/run_file/complete_spec.h"
#include "cli/run_file/load.h"
#include "cli/units/units.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

namespace planner = worker::planner;

// Their product is the default for the tokens of an inner step.
constexpr int64_t kBatchSequences = 8;
constexpr int64_t kSequenceTokens = 1024;

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::Status SetCodec(const std::string& flag, const std::string& name,
                      codec::CodecId* codec) {
  if (name.empty()) return absl::OkStatus();
  const std::optional<codec::CodecId> found = planner::FindCodecNamed(name);
  if (!found.has_value()) {
    std::string names;
    for (const codec::CodecId other : codec::AllCodecs()) {
      absl::StrAppend(&names, names.empty() ? "" : ", ",
                      codec::CodecName(other));
    }
    return UsageError(absl::StrCat(flag, ": there is no codec '", name, "'"),
                      absl::StrCat("Codecs: ", names, "."));
  }
  *codec = *found;
  return absl::OkStatus();
}

}  // namespace

absl::Status Named(const std::string& flag, const absl::Status& status) {
  return status.ok() ? status : WithContext(status, flag);
}

absl::StatusOr<Subject> ReadSubject(const PlanOptions& options) {
  Subject subject;
  if (IsDirectory(options.model)) {
    ASSIGN_OR_RETURN(const v1::ModelSpec spec,
                     worker::ReadModelSpec(options.model));
    ASSIGN_OR_RETURN(subject.model, worker::ModelOfSpec(spec));
  } else if (LooksLikeCount(options.model)) {
    const absl::StatusOr<int64_t> count = ParseCount(options.model);
    RETURN_IF_ERROR(Named("--model", count.status()));
    ASSIGN_OR_RETURN(subject.model,
                     worker::ModelOfSize(*count, options.layers));
  } else {
    absl::StatusOr<RunFile> read = LoadRunFile(options.model, {});
    if (absl::IsNotFound(read.status())) {
      return WithHint(
          Named("--model", read.status()),
          absl::StrCat("Give a number of parameters (1.2B), a directory with a "
                       "config.json, a TOML file, or a preset: ",
                       PresetNames(), "."));
    }
    ASSIGN_OR_RETURN(RunFile file, std::move(read));
    RETURN_IF_ERROR(CompleteLayout(&file));
    v1::RunSpec& run = file.spec;
    if (IsExternal(run.model())) {
      ASSIGN_OR_RETURN(const RunLayout layout, RunLayout::Create(run.layout()));
      return WithHint(
          Named("--model",
                absl::InvalidArgumentError(absl::StrCat(
                    "run ", file.run_id,
                    " trains a model of its own (architecture external), of "
                    "which `atoll plan` knows no layers"))),
          absl::StrCat("Plan for its number of parameters: --model ",
                       layout.element_count(),
                       ", with --layers and --tokens-per-step."));
    }
    ASSIGN_OR_RETURN(subject.model, worker::ModelOfSpec(run.model()));
    subject.tokens_a_step = TokensAStep(run);
    subject.token_count = run.schedule().token_count();
    subject.run = std::move(run);
  }
  if (!options.tokens.empty()) {
    const absl::StatusOr<int64_t> count = ParseCount(options.tokens);
    RETURN_IF_ERROR(Named("--tokens", count.status()));
    subject.token_count = *count;
  }
  if (!options.tokens_per_step.empty()) {
    const absl::StatusOr<int64_t> count = ParseCount(options.tokens_per_step);
    RETURN_IF_ERROR(Named("--tokens-per-step", count.status()));
    subject.tokens_a_step = *count;
  } else if (subject.tokens_a_step == 0) {
    const int64_t sequence = subject.model.sequence_length > 0
                                 ? subject.model.sequence_length
                                 : kSequenceTokens;
    subject.tokens_a_step = kBatchSequences * sequence;
  }
  return subject;
}

absl::StatusOr<planner::Exchange> Change(const PlanOptions& options,
                                         planner::Exchange exchange) {
  if (options.inner_steps > 0) exchange.inner_step_count = options.inner_steps;
  if (options.overlap >= 0) exchange.overlap_step_count = options.overlap;
  if (options.overlap >= exchange.inner_step_count) {
    return UsageError(
        absl::StrCat("--overlap ", options.overlap, " is not shorter than ",
                     exchange.inner_step_count, " inner steps"),
        "A fragment's answer must arrive before its next push.");
  }
  exchange.overlap_step_count =
      std::min(exchange.overlap_step_count, exchange.inner_step_count - 1);
  RETURN_IF_ERROR(SetCodec("--up-codec", options.up_codec, &exchange.up_codec));
  RETURN_IF_ERROR(
      SetCodec("--down-codec", options.down_codec, &exchange.down_codec));
  return exchange;
}

}  // namespace atl::cli
